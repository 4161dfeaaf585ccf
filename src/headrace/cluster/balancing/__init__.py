"""Plans of where replicas and leaders go. Pure: plain rows in, moves out.

    plan = plan_drain(nodes, partitions, {4})           # node 4 is to keep nothing
    plan = plan_balance(nodes, partitions)              # bytes, traffic and leaders spread
    plan.moves, plan.problems, plan.before, plan.after

Every plan keeps the replication factor, puts no two replicas on one machine or rack where that can
be avoided, fills no disk beyond a bound, and has as few moves as it can find. The same input gives
the same plan. `terms` has the rows, `ledger` what a plan keeps account of.
"""
