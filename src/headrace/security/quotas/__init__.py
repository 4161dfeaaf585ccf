"""Client quotas (KIP-13, 124, 219, 257, 546, 599, 612): who may use how much. Pure.

    quotas = ClientQuotas(Windows(11, 1000), Windows(11, 1000), clients_max=10_000)
    quotas.change(entity, {"producer_byte_rate": 1e6})
    budgets = quotas.budgets("alice", "app", now_ms)
    wait_ms = budgets.produce.spend(byte_count, now_ms)     # None where nothing limits her

`rates` measures, `limits` finds which limit holds for whom, `meters` joins the two, `connections`
limits how fast connections are made, `entities` says what can be limited and `filters` which
entities a client asks for. `server.metering` charges requests and mutes connections.
"""
