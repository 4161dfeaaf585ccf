-- reads: changes
select cast(key as string) as id, value is null as is_deleted, partition, offset, c.*
from (select *, from_json(cast(value as string), 'name string, city string') as c from changes)
