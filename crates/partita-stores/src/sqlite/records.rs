//! What reads and writes do, inside a transaction that somebody else began and ends. A write decides before it
//! changes anything, so a refusal leaves the transaction as it was.

use partita_core::model::{Incarnation, PartitionId, Scope, StreamId, Timestamp};
use partita_core::store::rules::{self, CheckpointChange};
use partita_core::store::{
    Adoption, CheckpointOutcome, CheckpointRecord, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceState, InstanceWrite, MOVES_KEPT_MAX, MoveRecord, Ownership, OwnershipOutcome, OwnershipWrite,
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, Row, params};

use super::clock::Clock;
use super::rows::{self, InstanceRow, of_incarnation, stored};
use super::scopes::{self, ScopeRow};

/// Whom a write concerns.
#[derive(Debug)]
pub(super) enum Concerns {
    /// Nobody: it was refused, or was only a heartbeat.
    Nobody,
    /// Those that the record named before or names now.
    Named(Vec<Incarnation>),
    /// Everybody: the membership changed, or an ownership became free.
    All,
}

/// A write's outcome, and whether somebody may wait for it.
pub(super) type Done<T> = Result<(T, bool)>;

pub(super) fn write_instance(
    db: &Connection,
    clock: &dyn Clock,
    scope: &Scope,
    write: &InstanceWrite,
) -> Done<InstanceOutcome> {
    let mut scope = ScopeRow::load_or_insert(db, scope)?;
    let now = clock.now();
    let registers = matches!(write, InstanceWrite::Register(_));
    if registers {
        forget_the_dead(db, &mut scope, clock)?;
    }
    let held = instance(db, &scope, write.incarnation())?;
    let current = held.as_ref().map(|row| row.seen(&now));
    let Some(record) = rules::instance(current.as_ref(), write) else {
        scope.store(db)?;
        return Ok((InstanceOutcome::Refused(current), false));
    };
    let beats = matches!(write, InstanceWrite::Beat { .. });
    let same_membership = beats
        && current.as_ref().is_some_and(|before| {
            before.record.stopping == record.stopping && before.record.declines == record.declines
        });
    let beat_at = match held {
        Some(held) if !beats => held.beat_at,
        _ => now.clone(),
    };
    let died_at = (record.state == InstanceState::Dead).then(|| now.clone());
    let row = InstanceRow { record, version: scope.next_version(), beat_at, died_at };
    put_instance(db, &scope, &row)?;
    let concerns = if same_membership { Concerns::Nobody } else { Concerns::All };
    let wakes = scope.count(db, concerns)?;
    scope.store(db)?;
    Ok((InstanceOutcome::Applied(row.seen(&now)), wakes))
}

pub(super) fn write_ownership(
    db: &Connection,
    scope: &Scope,
    write: &OwnershipWrite,
) -> Done<OwnershipOutcome> {
    let mut scope = ScopeRow::load_or_insert(db, scope)?;
    let now = Timestamp::now();
    let current = ownership(db, &scope, &write.partition)?;
    let Some((mut record, logged)) = rules::ownership(current.as_ref(), write, now) else {
        return Ok((OwnershipOutcome::Refused(current), false));
    };
    let checkpoint = match &write.checkpoint {
        None => None,
        Some(part) => {
            let held = checkpoint(db, &scope, &write.partition)?;
            match rules::atomic(held.as_ref(), &write.partition, part, &write.op, now) {
                CheckpointChange::Write(record) => Some(put_checkpoint(db, &mut scope, record)?),
                CheckpointChange::Keep(held) => Some(held),
                CheckpointChange::Fenced(held) | CheckpointChange::Behind(held) => {
                    return Ok((OwnershipOutcome::Fenced(held), false));
                }
            }
        }
    };
    record.version = scope.next_version();
    put_ownership(db, &scope, &record)?;
    if let Some(logged) = logged {
        log(db, &scope, &logged)?;
    }
    let wakes = scope.count(db, concerns(current.as_ref(), &record))?;
    scope.store(db)?;
    Ok((OwnershipOutcome::Applied { ownership: record, checkpoint }, wakes))
}

pub(super) fn write_checkpoint(
    db: &Connection,
    scope: &Scope,
    write: &CheckpointWrite,
) -> Done<CheckpointOutcome> {
    let mut scope = ScopeRow::load_or_insert(db, scope)?;
    let held = checkpoint(db, &scope, write.partition())?;
    let outcome = match rules::checkpoint(held.as_ref(), write, Timestamp::now()) {
        CheckpointChange::Write(record) => {
            let record = put_checkpoint(db, &mut scope, record)?;
            scope.store(db)?;
            CheckpointOutcome::Applied(record)
        }
        CheckpointChange::Keep(held) => CheckpointOutcome::Applied(held),
        CheckpointChange::Fenced(held) => CheckpointOutcome::Fenced(held),
        CheckpointChange::Behind(held) => CheckpointOutcome::Behind(held),
    };
    Ok((outcome, false))
}

pub(super) fn adopt_scope(
    db: &Connection,
    clock: &dyn Clock,
    from: &Scope,
    to: &Scope,
    stream: Option<&StreamId>,
) -> Done<Adoption> {
    let Some(former) = ScopeRow::load(db, from)? else { return Ok((Adoption::Nothing, false)) };
    let own = ScopeRow::load(db, to)?;
    let to_is_empty = match &own {
        Some(own) => own.is_empty(db)?,
        None => true,
    };
    let (view, checkpoints) = (view(db, clock, from)?, checkpoints(db, from)?);
    if let Some(refused) = rules::adoption(&view, &checkpoints, to_is_empty, stream) {
        return Ok((refused, false));
    }
    if let Some(own) = own {
        own.remove(db)?;
    }
    former.rename(db, to)?;
    Ok((Adoption::Moved, true))
}

pub(super) fn view(db: &Connection, clock: &dyn Clock, scope: &Scope) -> Result<GroupView> {
    let Some(scope) = ScopeRow::load(db, scope)? else { return Ok(GroupView::default()) };
    let mut ownerships =
        all(db.prepare_cached("SELECT * FROM ownership WHERE scope = ?1")?, &scope, |row| {
            rows::ownership(row)
        })?;
    ownerships.sort_by(|a, b| a.partition.cmp(&b.partition));
    let rows = all(db.prepare_cached("SELECT * FROM instance WHERE scope = ?1")?, &scope, InstanceRow::load)?;
    // After the rows were read: no stamp among them lies ahead of it.
    let now = clock.now();
    let mut instances: Vec<_> = rows.iter().map(|row| row.seen(&now)).collect();
    instances.sort_by(|a, b| a.record.incarnation.cmp(&b.record.incarnation));
    Ok(GroupView { ownerships, instances, cursor: scope.cursor() })
}

pub(super) fn checkpoints(db: &Connection, scope: &Scope) -> Result<Vec<CheckpointRecord>> {
    let Some(scope) = ScopeRow::load(db, scope)? else { return Ok(Vec::new()) };
    let statement = db.prepare_cached("SELECT * FROM checkpoint WHERE scope = ?1")?;
    let mut records = all(statement, &scope, rows::checkpoint)?;
    records.sort_by(|a, b| a.partition.cmp(&b.partition));
    Ok(records)
}

pub(super) fn moves(db: &Connection, scope: &Scope) -> Result<Vec<MoveRecord>> {
    let Some(scope) = ScopeRow::load(db, scope)? else { return Ok(Vec::new()) };
    all(db.prepare_cached("SELECT * FROM move WHERE scope = ?1 ORDER BY number")?, &scope, rows::moved)
}

fn all<T>(
    mut statement: CachedStatement<'_>,
    scope: &ScopeRow,
    load: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    statement.query_map([scope.id()], load)?.collect()
}

fn instance(db: &Connection, scope: &ScopeRow, incarnation: &Incarnation) -> Result<Option<InstanceRow>> {
    db.prepare_cached("SELECT * FROM instance WHERE scope = ?1 AND incarnation = ?2")?
        .query_row(params![scope.id(), of_incarnation(incarnation)], InstanceRow::load)
        .optional()
}

fn ownership(db: &Connection, scope: &ScopeRow, partition: &PartitionId) -> Result<Option<Ownership>> {
    db.prepare_cached("SELECT * FROM ownership WHERE scope = ?1 AND partition = ?2")?
        .query_row(params![scope.id(), partition.as_str()], rows::ownership)
        .optional()
}

fn checkpoint(
    db: &Connection,
    scope: &ScopeRow,
    partition: &PartitionId,
) -> Result<Option<CheckpointRecord>> {
    db.prepare_cached("SELECT * FROM checkpoint WHERE scope = ?1 AND partition = ?2")?
        .query_row(params![scope.id(), partition.as_str()], rows::checkpoint)
        .optional()
}

fn put_instance(db: &Connection, scope: &ScopeRow, row: &InstanceRow) -> Result<()> {
    let InstanceRow { record, version, beat_at, died_at } = row;
    db.prepare_cached(
        "INSERT OR REPLACE INTO instance (scope, incarnation, host, started, ttl_ms, stopping, declines, beat, \
         version, boot, stamp, died_boot, died, stream, initial, failing) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    )?
    .execute(params![
        scope.id(),
        of_incarnation(&record.incarnation),
        &*record.host,
        record.started.millis(),
        // Rounded up: a ttl that looks shorter would let a live instance be buried.
        i64::try_from(record.ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX),
        record.stopping,
        rows::of_partitions(&record.declines),
        stored(record.beat),
        stored(rows::version_number(version)),
        &*beat_at.boot,
        beat_at.nanos,
        died_at.as_ref().map(|died_at| &*died_at.boot),
        died_at.as_ref().map(|died_at| died_at.nanos),
        record.details.stream.as_ref().map(|stream| stream.as_str()),
        record.details.initial_position.as_ref().map(ToString::to_string),
        rows::of_failing(&record.details.failing),
    ])
    .map(drop)
}

fn put_ownership(db: &Connection, scope: &ScopeRow, record: &Ownership) -> Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO ownership (scope, partition, owner, epoch, next, since, reason, op_by, op_number, \
         version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        scope.id(),
        record.partition.as_str(),
        record.owner.as_ref().map(of_incarnation),
        stored(record.epoch.0),
        record.next.as_ref().map(of_incarnation),
        record.since.millis(),
        record.reason.as_str(),
        of_incarnation(&record.op.by),
        stored(record.op.number),
        stored(rows::version_number(&record.version)),
    ])
    .map(drop)
}

fn put_checkpoint(
    db: &Connection,
    scope: &mut ScopeRow,
    mut record: CheckpointRecord,
) -> Result<CheckpointRecord> {
    record.version = scope.next_version();
    let (resume, number, offset) = rows::of_resume(record.resume.as_ref());
    db.prepare_cached(
        "INSERT OR REPLACE INTO checkpoint (scope, partition, epoch, resume, number, \"offset\", stream, time, op_by, \
         op_number, version, enqueued) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        scope.id(),
        record.partition.as_str(),
        stored(record.epoch.0),
        resume,
        number,
        offset,
        record.stream.as_ref().map(|stream| stream.as_str()),
        record.time.millis(),
        of_incarnation(&record.op.by),
        stored(record.op.number),
        stored(rows::version_number(&record.version)),
        rows::of_enqueued(record.resume.as_ref()),
    ])?;
    Ok(record)
}

fn log(db: &Connection, scope: &ScopeRow, moved: &MoveRecord) -> Result<()> {
    let number: i64 = db
        .prepare_cached(
            "INSERT INTO move (scope, number, partition, from_owner, to_owner, epoch, reason, time) \
             SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7 FROM move WHERE scope = ?1 \
             RETURNING number",
        )?
        .query_row(
            params![
                scope.id(),
                moved.partition.as_str(),
                moved.from.as_ref().map(of_incarnation),
                moved.to.as_ref().map(of_incarnation),
                stored(moved.epoch.0),
                moved.reason.as_str(),
                moved.time.millis(),
            ],
            |row| row.get(0),
        )?;
    db.prepare_cached("DELETE FROM move WHERE scope = ?1 AND number <= ?2")?
        .execute(params![scope.id(), number - MOVES_KEPT_MAX as i64])
        .map(drop)
}

/// Who died in another boot died long ago: nobody of that boot comes back to learn of it.
fn forget_the_dead(db: &Connection, scope: &mut ScopeRow, clock: &dyn Clock) -> Result<()> {
    let dead = db.prepare_cached("SELECT * FROM instance WHERE scope = ?1 AND died IS NOT NULL")?;
    let dead = all(dead, scope, InstanceRow::load)?;
    let now = clock.now();
    for row in dead {
        if row.died_at.is_some_and(|died_at| now.since(&died_at) >= rules::DEAD_KEPT) {
            db.prepare_cached("DELETE FROM instance WHERE scope = ?1 AND incarnation = ?2")?
                .execute(params![scope.id(), of_incarnation(&row.record.incarnation)])?;
        }
    }
    scopes::forget_the_gone(db, scope)
}

fn concerns(before: Option<&Ownership>, after: &Ownership) -> Concerns {
    let was_free = before.is_some_and(|held| held.owner.is_none());
    if after.owner.is_none() && !was_free {
        return Concerns::All;
    }
    let before = before.into_iter().flat_map(|held| [&held.owner, &held.next]);
    let mut names: Vec<Incarnation> = before.chain([&after.owner, &after.next]).flatten().cloned().collect();
    names.sort_unstable();
    names.dedup();
    Concerns::Named(names)
}
