//! What happens to the processors and when: `--at TIME=ACTION`, checked before anything starts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units::{Time, parse_time};

/// Something done to the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Add,
    Kill,
    Remove,
    Freeze,
    Thaw,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Add => "add",
            Self::Kill => "kill",
            Self::Remove => "remove",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
        })
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "add" => Ok(Self::Add),
            "kill" => Ok(Self::Kill),
            "remove" => Ok(Self::Remove),
            "freeze" => Ok(Self::Freeze),
            "thaw" => Ok(Self::Thaw),
            _ => Err(format!("there is no action {text:?}: use add, kill, remove, freeze or thaw")),
        }
    }
}

/// An action and its time, from the beginning of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) action: Action,
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (at, action) =
            text.split_once('=').ok_or("write a time, = and an action, such as 10s=kill".to_owned())?;
        Ok(Self { at: parse_time(at)?, action: action.parse()? })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", Time(self.at), self.action)
    }
}

/// Steps that can all be carried out, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Script(Vec<Step>);

impl Script {
    /// One joins, one crashes, one leaves, at the quarters of the run.
    pub(crate) fn usual(length: Duration) -> Vec<Step> {
        [(1, Action::Add), (2, Action::Kill), (3, Action::Remove)]
            .map(|(quarter, action)| Step { at: length * quarter / 4, action })
            .to_vec()
    }

    /// Checks that every step has its time and somebody to happen to, and that somebody is left at the end.
    pub(crate) fn new(mut steps: Vec<Step>, length: Duration, processors: u32) -> Result<Self, String> {
        steps.sort_by_key(|step| step.at);
        let (mut running, mut frozen) = (processors, 0);
        for step in &steps {
            if step.at >= length {
                return Err(format!(
                    "--at {step} is not before the end of the run at {}: choose an earlier time or a longer --for",
                    Time(length)
                ));
            }
            let nobody = || {
                format!(
                    "--at {step} finds no processor left: start more with --processors, or add one before it"
                )
            };
            match step.action {
                Action::Add => running += 1,
                Action::Kill | Action::Remove => running = running.checked_sub(1).ok_or_else(nobody)?,
                Action::Freeze => {
                    running = running.checked_sub(1).ok_or_else(nobody)?;
                    frozen += 1;
                }
                Action::Thaw if frozen == 0 => {
                    return Err(format!("--at {step} finds nobody frozen: freeze one before it"));
                }
                Action::Thaw => (running, frozen) = (running + 1, frozen - 1),
            }
        }
        // What is still frozen at the end is thawed then.
        running += frozen;
        if running == 0 {
            return Err(
                "the script leaves no processor to handle the rest: start more with --processors, add \
                        one at the end, or kill and remove fewer"
                    .to_owned(),
            );
        }
        Ok(Self(steps))
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(20);

    fn script(steps: &[&str], processors: u32) -> Result<Script, String> {
        Script::new(steps.iter().map(|step| step.parse().unwrap()).collect(), LENGTH, processors)
    }

    #[test]
    fn the_usual_script_of_20_s_is_the_documented_one() {
        let usual: Vec<String> = Script::usual(LENGTH).iter().map(Step::to_string).collect();
        assert_eq!(usual, ["5s=add", "10s=kill", "15s=remove"]);
    }

    #[test]
    fn steps_are_put_in_order_and_those_of_one_time_keep_theirs() {
        let ordered = script(&["9s=kill", "2s=add", "9s=remove"], 3).unwrap();
        let text: Vec<String> = ordered.steps().iter().map(Step::to_string).collect();
        assert_eq!(text, ["2s=add", "9s=kill", "9s=remove"]);
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_what_to_do() {
        let refused = |steps: &[&str], processors| script(steps, processors).unwrap_err();
        assert!(refused(&["20s=add"], 1).contains("an earlier time or a longer --for"));
        assert!(refused(&["1s=kill", "2s=kill"], 1).contains("2s=kill finds no processor left"));
        assert!(refused(&["1s=kill"], 1).contains("leaves no processor"));
        assert!(refused(&["1s=thaw"], 1).contains("nobody frozen"));
        assert!(refused(&["1s=freeze", "2s=kill"], 1).contains("2s=kill finds no processor left"));
        assert!(script(&["1s=freeze"], 1).is_ok(), "it is thawed at the end");
        assert!(script(&["1s=kill", "2s=add"], 1).is_ok(), "a group may be gone for a while");
    }

    #[test]
    fn unknown_actions_are_refused_with_those_there_are() {
        assert!("5s=fly".parse::<Step>().unwrap_err().contains("use add, kill, remove, freeze or thaw"));
        assert!("5s".parse::<Step>().unwrap_err().contains("10s=kill"));
    }
}
