"""Share groups (KIP-932) from the client's side: queues on the log.

`consumer` and `blocking` are what users import. `worker` runs a function over a queue: `handling`
calls it, `leased` has the locks and the words, `fate` says where a record goes. They stand on
`delivery`, the shell around `link` (one node) and `membership` (the group's coordinator). What
can be pure is: `session`, `acknowledgements`, `acquired`, `held`, `member`.
"""
