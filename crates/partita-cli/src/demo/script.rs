//! What happens to the processors and when: `--at TIME=ACTION`, checked before anything starts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Something done to the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Add,
    Kill,
    Remove,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Add => "add",
            Self::Kill => "kill",
            Self::Remove => "remove",
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
            _ => Err(format!("there is no action {text:?}: use add, kill or remove")),
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
        let mut running = processors;
        for step in &steps {
            if step.at >= length {
                return Err(format!(
                    "--at {step} is not before the end of the run at {}: choose an earlier time or a longer --for",
                    Time(length)
                ));
            }
            running = match step.action {
                Action::Add => running + 1,
                Action::Kill | Action::Remove => running.checked_sub(1).ok_or_else(|| {
                    format!(
                        "--at {step} finds no processor left: start more with --processors, or add one before it"
                    )
                })?,
            };
        }
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

/// Reads `20s`, `1.5s`, `500ms`, `2m` or `1h`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("{text:?} is no time: write 20s, 1.5s, 500ms, 2m or 1h")),
    };
    let plain = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number: f64 = number
        .parse()
        .ok()
        .filter(|_| plain)
        .ok_or_else(|| format!("{text:?} is no time: write 20s, 1.5s, 500ms, 2m or 1h"))?;
    Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| format!("{text:?} is too long"))
}

/// A time as a user would write it.
pub(crate) struct Time(pub(crate) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0 => f.write_str("0s"),
            _ if ms.is_multiple_of(60_000) => write!(f, "{}m", ms / 60_000),
            _ if ms >= 1_000 => write!(f, "{}s", ms as f64 / 1_000.0),
            _ => write!(f, "{ms}ms"),
        }
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
    fn times_are_read_as_people_write_them() {
        let ms = |text| parse_time(text).unwrap().as_millis();
        assert_eq!(
            ["20s", "1.5s", "500ms", "2m", "1h", "0s"].map(ms),
            [20_000, 1_500, 500, 120_000, 3_600_000, 0]
        );
        for bad in ["", "20", "s", "-1s", "1e3s", "5 s", "2d", "1.2.3s", "infs"] {
            assert!(parse_time(bad).unwrap_err().contains("write 20s"), "{bad:?}");
        }
        assert!(parse_time("99999999999999999999h").unwrap_err().contains("too long"));
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["20s", "1.5s", "500ms", "2m", "0s"] {
            assert_eq!(Time(parse_time(text).unwrap()).to_string(), text);
        }
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
        assert!(script(&["1s=kill", "2s=add"], 1).is_ok(), "a group may be gone for a while");
    }

    #[test]
    fn unknown_actions_are_refused_with_those_there_are() {
        assert!("5s=fly".parse::<Step>().unwrap_err().contains("use add, kill or remove"));
        assert!("5s".parse::<Step>().unwrap_err().contains("10s=kill"));
    }
}
