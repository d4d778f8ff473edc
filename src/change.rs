//! A change to a plan as a person writes it: `PATH=VALUE`, `PATH=2x`, or a slow rank. Parsing looks at the words alone;
//! whether the path exists and the value suits it is seen when the change meets a plan.

use crate::Failure;
use std::fmt;

/// What a field becomes.
#[derive(Debug, Clone, PartialEq)]
pub enum Amount {
    /// So many times what it was.
    Times(f64),
    /// This value, spelt as the plan spells it.
    To(String),
}

/// One thing that would be otherwise.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A field of the plan or its job.
    Set {
        /// Dotted path.
        path: String,
        /// What it becomes.
        amount: Amount,
    },
    /// One rank computes slower.
    Straggler {
        /// Which rank.
        rank: u32,
        /// How many times longer its kernels take.
        slow: f64,
    },
}

/// Largest factor by which anything may change: beyond it a duration could overflow, and a prediction means nothing.
pub(crate) const MOST: f64 = 1e4;

impl Change {
    /// Parses `PATH=VALUE` or `PATH=2x`.
    pub fn set(text: &str) -> Result<Self, Failure> {
        let (path, value) = split(text, "--set", "PATH=VALUE or PATH=2x")?;
        Ok(Self::Set { path: path.into(), amount: amount(text, value)? })
    }

    /// Parses `PATH=a,b,c`: one change for each value, in order.
    pub fn sweep(text: &str) -> Result<Vec<Self>, Failure> {
        let (path, values) = split(text, "--sweep", "PATH=a,b,c")?;
        let one = |value: &str| Ok(Self::Set { path: path.into(), amount: amount(text, value.trim())? });
        values.split(',').map(one).collect()
    }

    /// Parses `rank=3,slow=1.3`.
    pub fn straggler(text: &str) -> Result<Self, Failure> {
        let bad = |what: &str| {
            let fix = "write a rank of the plan and a factor, as in --straggler rank=3,slow=1.3";
            Failure::new(format!("--straggler {text}: {what}"), fix)
        };
        let (mut rank, mut slow) = (None, None);
        for part in text.split(',') {
            match part.trim().split_once('=') {
                Some(("rank", n)) if rank.is_none() => {
                    rank = Some(n.parse().map_err(|_| bad(&format!("`{n}` is no rank")))?);
                }
                Some(("slow", x)) if slow.is_none() => {
                    slow =
                        Some(factor(x).ok_or_else(|| bad(&format!("`{x}` is no factor from 1e-4 to 1e4")))?);
                }
                _ => return Err(bad(&format!("`{part}` is none of rank=… and slow=…, each once"))),
            }
        }
        match (rank, slow) {
            (Some(rank), Some(slow)) => Ok(Self::Straggler { rank, slow }),
            (None, _) => Err(bad("no rank")),
            (_, None) => Err(bad("no factor")),
        }
    }
}

impl fmt::Display for Change {
    /// As it would be typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Set { path, amount: Amount::Times(x) } => f.pad(&format!("{path}={x}x")),
            Change::Set { path, amount: Amount::To(value) } => f.pad(&format!("{path}={value}")),
            Change::Straggler { rank, slow } => f.pad(&format!("straggler rank={rank},slow={slow}")),
        }
    }
}

fn split<'t>(text: &'t str, flag: &str, form: &str) -> Result<(&'t str, &'t str), Failure> {
    let parts = text.split_once('=').map(|(p, v)| (p.trim(), v.trim()));
    parts.filter(|(p, v)| !p.is_empty() && !v.is_empty()).ok_or_else(|| {
        let fix = format!("write {flag} {form}, as in {flag} cluster.device.memory_bandwidth=2x");
        Failure::new(format!("{flag} {text}: no {form}"), fix)
    })
}

/// A factor from 1e-4 to 1e4.
fn factor(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|x| (1.0 / MOST..=MOST).contains(x))
}

fn amount(text: &str, value: &str) -> Result<Amount, Failure> {
    if value.is_empty() {
        return Err(Failure::new(format!("{text}: an empty value"), "write a value between the commas"));
    }
    let Some(number) = value.strip_suffix('x').filter(|n| n.parse::<f64>().is_ok()) else {
        return Ok(Amount::To(value.into()));
    };
    let times = factor(number).ok_or_else(|| {
        Failure::new(
            format!("{text}: {value} is no factor"),
            "write a finite number of times from 1e-4 to 1e4, as in 2x or 0.5x",
        )
    })?;
    Ok(Amount::Times(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reads_as_it_is_typed() {
        let typed =
            ["training.sequence=4096", "cluster.device.memory_bandwidth=2x", "schedule=gpipe", "a=0.5x"];
        for text in typed {
            assert_eq!(Change::set(text).unwrap().to_string(), text);
        }
        let sweep: Vec<String> =
            Change::sweep("a.b=1, 2x,3").unwrap().iter().map(Change::to_string).collect();
        assert_eq!(sweep, ["a.b=1", "a.b=2x", "a.b=3"]);
        let straggler = Change::straggler("slow=1.3,rank=3").unwrap();
        assert_eq!(straggler, Change::Straggler { rank: 3, slow: 1.3 });
    }

    #[test]
    fn what_is_no_change_is_refused() {
        for text in ["", "a", "a=", "=2", "a=nanx", "a=infx", "a=-2x", "a=0x", "a=1e9x"] {
            assert!(Change::set(text).is_err(), "{text}");
        }
        for text in ["a=1,,2", "a=", "a"] {
            assert!(Change::sweep(text).is_err(), "{text}");
        }
        for text in [
            "",
            "rank=1",
            "slow=2",
            "rank=-1,slow=2",
            "rank=1,slow=nan",
            "rank=1,slow=2,rank=2",
            "rank=1,slow=0",
        ] {
            assert!(Change::straggler(text).is_err(), "{text}");
        }
    }
}
