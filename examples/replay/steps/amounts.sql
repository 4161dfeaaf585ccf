-- reads: sales_topic
select s.id, date_format(s.at, 'yyyy-MM') as month, to_date(s.at) as day,
       if(to_date(s.at) >= to_date(:cents_since), s.amount / 100, s.amount) as amount
from (select from_json(cast(value as string), 'id bigint, at timestamp, amount double') as s
      from sales_topic)
