-- Coordination of Partita processors. Text columns that name an incarnation hold its id, a '#' and 32 hex digits.
-- since, started, time: wall clock in milliseconds, for people. stamp, died: nanoseconds of the boot named beside it.

CREATE TABLE scope (
    id              INTEGER PRIMARY KEY,
    namespace       TEXT NOT NULL,
    hub             TEXT NOT NULL,
    consumer_group  TEXT NOT NULL,             -- in lower case
    version_last    INTEGER NOT NULL,          -- one counter for all records of the scope
    changes         INTEGER NOT NULL,          -- counts the changes that concern others; heartbeats do not
    all_at          INTEGER NOT NULL,          -- the last change that concerned everybody
    forgotten_at    INTEGER NOT NULL,          -- the last change that was forgotten with its row of concern
    UNIQUE (namespace, hub, consumer_group)
) STRICT;

-- The last change that concerned one incarnation.
CREATE TABLE concern (
    scope           INTEGER NOT NULL,
    incarnation     TEXT NOT NULL,
    at              INTEGER NOT NULL,
    PRIMARY KEY (scope, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE instance (
    scope           INTEGER NOT NULL,
    incarnation     TEXT NOT NULL,
    host            TEXT NOT NULL,
    started         INTEGER NOT NULL,
    ttl_ms          INTEGER NOT NULL,
    stopping        INTEGER NOT NULL,
    declines        TEXT NOT NULL,             -- partitions, each as its length in bytes, ':' and the text
    beat            INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    boot            TEXT NOT NULL,
    stamp           INTEGER NOT NULL,          -- the last heartbeat
    died_boot       TEXT,
    died            INTEGER,                   -- null = live
    stream          TEXT,                      -- the life of the hub that it reads
    initial         TEXT,                      -- where it starts a partition without a checkpoint
    failing         TEXT,                      -- six texts per partition, each as its length in bytes, ':' and the text
    PRIMARY KEY (scope, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE ownership (
    scope           INTEGER NOT NULL,
    partition       TEXT NOT NULL,
    owner           TEXT,
    epoch           INTEGER NOT NULL,
    next            TEXT,
    since           INTEGER NOT NULL,
    reason          TEXT NOT NULL,
    op_by           TEXT NOT NULL,
    op_number       INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    PRIMARY KEY (scope, partition)
) STRICT, WITHOUT ROWID;

CREATE INDEX hand_off ON ownership (scope, next) WHERE next IS NOT NULL;

CREATE TABLE checkpoint (
    scope           INTEGER NOT NULL,
    partition       TEXT NOT NULL,
    epoch           INTEGER NOT NULL,
    resume          TEXT,                      -- what the next two columns mean; null = nothing checkpointed
    number          INTEGER,                   -- a sequence number, or a time
    "offset"        TEXT,
    stream          TEXT,
    enqueued        INTEGER,                   -- when the event at the position came
    time            INTEGER NOT NULL,
    op_by           TEXT NOT NULL,
    op_number       INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    PRIMARY KEY (scope, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE move (
    scope           INTEGER NOT NULL,
    number          INTEGER NOT NULL,
    partition       TEXT NOT NULL,
    from_owner      TEXT,
    to_owner        TEXT,
    epoch           INTEGER NOT NULL,
    reason          TEXT NOT NULL,
    time            INTEGER NOT NULL,
    PRIMARY KEY (scope, number)
) STRICT, WITHOUT ROWID;
