//! `partita plan`: what the balance would do, by the very function that processors compute it with.

use std::collections::BTreeMap;
use std::process::ExitCode;

use partita_core::balance::{Holding, Member, OwnerState, Policy, Snapshot, assign};
use partita_core::model::{Incarnation, InstanceId, PartitionId};
use partita_core::store::{InstanceSeen, InstanceState};
use serde_json::{Value, json};

use super::{Form, Group, GroupArgs, is_live};
use crate::Failure;
use crate::connection::{HELP, runtime};
use crate::output::{Out, counted};
use crate::table::{self, Column};

/// As many as anybody could mean.
const JOINS_MAX: u16 = 1_024;

/// Says which partitions would move if instances came or went; changes nothing.
///
/// Without --join and --leave: what is still to move as things are.
#[derive(clap::Args, Debug)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    group: GroupArgs,

    /// This many instances join
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=i64::from(JOINS_MAX)))]
    join: u16,

    /// This instance leaves: its name, or the start of it; may be repeated
    #[arg(long, value_name = "INSTANCE")]
    leave: Vec<String>,
}

/// How a partition would change its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    HandOff,
    /// The owner goes in good order; it would be taken from it if it died.
    Released,
    Claimed,
    TakenFromDead,
    /// Nobody is left to take it.
    Unowned,
}

impl How {
    fn as_str(self) -> &'static str {
        match self {
            Self::HandOff => "hand-off",
            Self::Released => "released, then claimed",
            Self::Claimed => "claimed",
            Self::TakenFromDead => "taken from dead",
            Self::Unowned => "left without an owner",
        }
    }
}

struct Move {
    partition: PartitionId,
    from: Option<Incarnation>,
    to: Option<Incarnation>,
    how: How,
}

/// Who has how many, now and then.
struct Outcome {
    moves: Vec<Move>,
    shares: BTreeMap<Incarnation, (usize, usize)>,
    leaving: Vec<Incarnation>,
}

/// Computes and prints it.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    crate::log_if_asked();
    let runtime = runtime()?;
    let group = runtime.block_on(async { args.group.open()?.look().await });
    runtime.shutdown_background();
    let group = group?;
    let leaving = find_all(&group, &args.leave)?;
    let outcome = outcome(&group, usize::from(args.join), leaving);
    let mut out = Out::stdout();
    if args.group.output == Form::Json {
        out.line(&format!("{:#}", to_json(&outcome)))?;
    } else {
        print(&mut out, &group, &outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The live instances that are meant.
fn find_all(group: &Group, names: &[String]) -> Result<Vec<Incarnation>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let live =
            || group.view.instances.iter().filter(|seen| is_live(seen)).map(|seen| &seen.record.incarnation);
        let matching: Vec<_> = match live().filter(|inc| inc.id().as_str() == name).collect::<Vec<_>>() {
            exact if !exact.is_empty() => exact,
            _ => live().filter(|incarnation| incarnation.id().as_str().starts_with(name.as_str())).collect(),
        };
        match matching.as_slice() {
            [one] => found.push((*one).clone()),
            [] => {
                let known: Vec<&str> = live().map(|incarnation| incarnation.id().short()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Failure::Missing(format!("no live instance is called {name}: there is {known}")));
            }
            _ => {
                return Err(Failure::Usage(format!(
                    "more than one instance is called {name}...: say more of it"
                )));
            }
        }
    }
    Ok(found)
}

fn is_silent(seen: &InstanceSeen) -> bool {
    seen.age >= seen.record.ttl
}

/// What the plan of the group would be with others in it.
fn outcome(group: &Group, joins: usize, leaving: Vec<Incarnation>) -> Outcome {
    let takes_part = |seen: &&InstanceSeen| {
        let record = &seen.record;
        is_live(seen) && !record.stopping && !is_silent(seen) && !leaving.contains(&record.incarnation)
    };
    let mut members: Vec<Member> = group
        .view
        .instances
        .iter()
        .filter(takes_part)
        .map(|seen| Member {
            incarnation: seen.record.incarnation.clone(),
            declines: seen.record.declines.clone(),
        })
        .collect();
    members.extend((1..=joins).map(|number| Member {
        incarnation: Incarnation::new(InstanceId::new(format!("new-{number}")), number as u128),
        declines: Vec::new(),
    }));
    let state = |owner: &Incarnation| {
        let seen = group.view.instances.iter().find(|seen| seen.record.incarnation == *owner);
        match seen {
            Some(seen) if seen.record.state == InstanceState::Dead => OwnerState::Dead,
            Some(seen) if !is_silent(seen) => OwnerState::Live,
            _ => OwnerState::Expired,
        }
    };
    let holdings: Vec<Holding> = group
        .partitions
        .iter()
        .map(|partition| {
            let record = group.ownership(partition);
            let owner = record.and_then(|record| record.owner.clone());
            Holding {
                partition: partition.clone(),
                owner: owner.map(|owner| {
                    let state = state(&owner);
                    (owner, state)
                }),
                next: record.and_then(|record| record.next.clone()),
            }
        })
        .collect();
    let mut shares: BTreeMap<Incarnation, (usize, usize)> =
        members.iter().map(|member| (member.incarnation.clone(), (0, 0))).collect();
    let target = assign(&Snapshot { members, holdings: holdings.clone() }, Policy::default());
    let mut moves = Vec::new();
    for Holding { partition, owner, .. } in holdings {
        let to = target.get(&partition).cloned();
        if let Some((owner, _)) = &owner {
            shares.entry(owner.clone()).or_default().0 += 1;
        }
        if let Some(to) = &to {
            shares.entry(to.clone()).or_default().1 += 1;
        }
        let how = match (&owner, &to) {
            (Some((owner, _)), Some(to)) if owner == to => continue,
            (None, None) => continue,
            (_, None) => How::Unowned,
            (None, Some(_)) => How::Claimed,
            (Some((owner, _)), Some(_)) if leaving.contains(owner) => How::Released,
            (Some((_, OwnerState::Live)), Some(_)) => How::HandOff,
            (Some(_), Some(_)) => How::TakenFromDead,
        };
        moves.push(Move { partition, from: owner.map(|(owner, _)| owner), to, how });
    }
    Outcome { moves, shares, leaving }
}

const MOVES: [Column; 4] = [("PARTITION", true), ("FROM", false), ("TO", false), ("HOW", false)];
const SHARES: [Column; 3] = [("INSTANCE", false), ("OWNS", true), ("WOULD OWN", true)];

fn print(out: &mut Out, group: &Group, outcome: &Outcome) -> Result<(), Failure> {
    let name = |who: &Option<Incarnation>| who.as_ref().map_or_else(|| "-".to_owned(), |who| group.name(who));
    let all = counted(group.partitions.len() as u64, "partition");
    if outcome.moves.is_empty() {
        out.line(&format!("Nothing would move: of {all}, each stays where it is."))?;
    } else {
        out.line(&format!("{} of {all} would move:", outcome.moves.len()))?;
        let rows = outcome.moves.iter().map(|one| {
            vec![one.partition.to_string(), name(&one.from), name(&one.to), one.how.as_str().to_owned()]
        });
        table::print(out, &MOVES, rows.collect())?;
    }
    out.line("")?;
    let rows = outcome.shares.iter().map(|(who, (now, then))| {
        let then = if outcome.leaving.contains(who) { "gone".to_owned() } else { then.to_string() };
        vec![group.name(who), now.to_string(), then]
    });
    table::print(out, &SHARES, rows.collect())
}

fn to_json(outcome: &Outcome) -> Value {
    let id = |who: &Option<Incarnation>| who.as_ref().map(|who| who.id().as_str().to_owned());
    let moves: Vec<Value> = outcome
        .moves
        .iter()
        .map(|one| {
            json!({
                "partition": one.partition.as_str(),
                "from": id(&one.from),
                "to": id(&one.to),
                "how": one.how.as_str(),
            })
        })
        .collect();
    let instances: Vec<Value> = outcome
        .shares
        .iter()
        .map(|(who, (now, then))| {
            let leaves = outcome.leaving.contains(who);
            json!({"id": who.id().as_str(), "owns": now, "would_own": then, "leaves": leaves})
        })
        .collect();
    json!({"moves": moves, "instances": instances})
}
