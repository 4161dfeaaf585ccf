-- reads: clicks
-- watermark: at 10 minutes
select c.page, c.at
from (select from_json(cast(value as string), 'page string, at timestamp') as c from clicks)
where c.at is not null
