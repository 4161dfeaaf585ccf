-- reads: events
-- writes: clicks_per_page
select page, window.start as since, count(*) as clicks
from events
group by page, window(at, '5 minutes')
