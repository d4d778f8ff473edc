//! The text form of ops, which programs and goldens use: `name[key=value …]`, read back by the same names. A key that has
//! its usual value may be left out.

use super::{AttentionCore, Dropout, Op, Real, ScoreBias, Scores};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Op {
    /// `linear[input=64 output=256 input_grain=1 output_grain=16]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.name())?;
        match self {
            Op::Embedding { rows, width, index } => write!(f, "rows={rows} width={width} index={index}")?,
            Op::Linear { input, output, input_grain, output_grain } => write!(
                f,
                "input={input} output={output} input_grain={input_grain} output_grain={output_grain}"
            )?,
            Op::Bias { width, grain } => write!(f, "width={width} grain={grain}")?,
            Op::Norm { kind, width, groups, eps } => {
                write!(f, "kind={kind} width={width} groups={groups} eps={eps}")?
            }
            Op::Rope { heads, head_dim, theta, turned } => {
                write!(f, "heads={heads} head_dim={head_dim} theta={theta}")?;
                turned.map_or(Ok(()), |t| write!(f, " turned={t}"))?
            }
            Op::Attention { heads, kv_heads, head_dim, causal, window, scores, core, dropout } => {
                write!(
                    f,
                    "heads={heads} kv_heads={kv_heads} head_dim={head_dim} causal={causal} window={}",
                    window.unwrap_or(0)
                )?;
                scores.softcap.map_or(Ok(()), |c| write!(f, " softcap={c}"))?;
                match scores.bias {
                    ScoreBias::None => {}
                    ScoreBias::Alibi | ScoreBias::Sinks | ScoreBias::Relative { .. } => {
                        write!(f, " bias={}", scores.bias)?
                    }
                }
                if !core.is_fused() {
                    write!(f, " core={core}")?;
                }
                if let Some(Dropout { rate, site }) = dropout {
                    write!(f, " rate={rate} site={site}")?;
                }
            }
            Op::Dropout { width, dropout: Dropout { rate, site } } => {
                write!(f, "width={width} rate={rate} site={site}")?
            }
            Op::LatentAttention { heads, nope, rotary, value, top } => {
                write!(f, "heads={heads} nope={nope} rotary={rotary} value={value}")?;
                top.map_or(Ok(()), |t| write!(f, " top={t}"))?
            }
            Op::Index { heads, head_dim, top } => write!(f, "heads={heads} head_dim={head_dim} top={top}")?,
            Op::Scale { width, factor } => write!(f, "width={width} factor={factor}")?,
            Op::Gain { width, grain } => write!(f, "width={width} grain={grain}")?,
            Op::Route { experts, top_k, kind } => write!(f, "experts={experts} top_k={top_k} kind={kind}")?,
            Op::Dispatch { width, experts, top_k }
            | Op::Combine { width, experts, top_k }
            | Op::ExpertBias { experts, top_k, width } => {
                write!(f, "width={width} experts={experts} top_k={top_k}")?
            }
            Op::ExpertLinear { experts, top_k, input, output } => {
                write!(f, "experts={experts} top_k={top_k} input={input} output={output}")?
            }
            Op::Conv { width, kernel } => write!(f, "width={width} kernel={kernel}")?,
            Op::Scan { kind, heads, head_dim, state, groups } => {
                write!(f, "kind={kind} heads={heads} head_dim={head_dim} state={state} groups={groups}")?
            }
            Op::Input { width, kind } => write!(f, "width={width} kind={kind}")?,
            Op::Activation { kind, width } | Op::Gate { kind, width } => {
                write!(f, "kind={kind} width={width}")?
            }
            Op::Add { width } | Op::Spread { width } => write!(f, "width={width}")?,
            Op::CrossEntropy { vocab } => write!(f, "vocab={vocab}")?,
        }
        f.write_str("]")
    }
}

impl FromStr for Op {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (name, rest) =
            s.strip_suffix(']').and_then(|r| r.split_once('[')).ok_or_else(|| format!("`{s}` is no op"))?;
        let pairs: Vec<(&str, &str)> = rest.split_whitespace().filter_map(|w| w.split_once('=')).collect();
        let text = |key: &str| {
            pairs.iter().find(|p| p.0 == key).map(|p| p.1).ok_or_else(|| format!("op {name} lacks `{key}`"))
        };
        let number = |key: &str| -> Result<u64, String> {
            text(key)?.parse().map_err(|_| format!("op {name}: `{key}` is no number"))
        };
        let real = |key: &str| -> Result<Real, String> {
            let x: f64 = text(key)?.parse().map_err(|_| format!("op {name}: `{key}` is no number"))?;
            if x.is_finite() { Ok(Real(x)) } else { Err(format!("op {name}: `{key}` is not finite")) }
        };
        // Keys that may be left out.
        let given = |key: &str| pairs.iter().any(|p| p.0 == key);
        let maybe = |key: &str| if given(key) { number(key).map(Some) } else { Ok(None) };
        let dropout = || -> Result<Dropout, String> {
            let site = text("site")?.parse().map_err(|_| format!("op {name}: `site` is no number"))?;
            Ok(Dropout { rate: real("rate")?, site })
        };
        let routed = || Ok::<_, String>((number("width")?, number("experts")?, number("top_k")?));
        Ok(match name {
            "embedding" => Op::Embedding {
                rows: number("rows")?,
                width: number("width")?,
                index: text("index")?.parse()?,
            },
            "linear" => Op::Linear {
                input: number("input")?,
                output: number("output")?,
                input_grain: number("input_grain")?,
                output_grain: number("output_grain")?,
            },
            "bias" => Op::Bias { width: number("width")?, grain: number("grain")? },
            "norm" => Op::Norm {
                kind: text("kind")?.parse()?,
                width: number("width")?,
                groups: number("groups")?,
                eps: real("eps")?,
            },
            "rope" => Op::Rope {
                heads: number("heads")?,
                head_dim: number("head_dim")?,
                theta: real("theta")?,
                turned: maybe("turned")?,
            },
            "attention" => Op::Attention {
                heads: number("heads")?,
                kv_heads: number("kv_heads")?,
                head_dim: number("head_dim")?,
                causal: text("causal")? == "true",
                window: Some(number("window")?).filter(|w| *w > 0),
                scores: Scores {
                    softcap: if given("softcap") { Some(real("softcap")?) } else { None },
                    bias: if given("bias") { text("bias")?.parse()? } else { ScoreBias::None },
                },
                core: if given("core") { text("core")?.parse()? } else { AttentionCore::Fused },
                dropout: if given("rate") { Some(dropout()?) } else { None },
            },
            "dropout" => Op::Dropout { width: number("width")?, dropout: dropout()? },
            "latent-attention" => Op::LatentAttention {
                heads: number("heads")?,
                nope: number("nope")?,
                rotary: number("rotary")?,
                value: number("value")?,
                top: maybe("top")?,
            },
            "index" => {
                Op::Index { heads: number("heads")?, head_dim: number("head_dim")?, top: number("top")? }
            }
            "scale" => Op::Scale { width: number("width")?, factor: real("factor")? },
            "spread" => Op::Spread { width: number("width")? },
            "gain" => Op::Gain { width: number("width")?, grain: number("grain")? },
            "route" => Op::Route {
                experts: number("experts")?,
                top_k: number("top_k")?,
                kind: text("kind")?.parse()?,
            },
            "dispatch" => {
                let (width, experts, top_k) = routed()?;
                Op::Dispatch { width, experts, top_k }
            }
            "combine" => {
                let (width, experts, top_k) = routed()?;
                Op::Combine { width, experts, top_k }
            }
            "expert-bias" => {
                let (width, experts, top_k) = routed()?;
                Op::ExpertBias { experts, top_k, width }
            }
            "expert-linear" => Op::ExpertLinear {
                experts: number("experts")?,
                top_k: number("top_k")?,
                input: number("input")?,
                output: number("output")?,
            },
            "conv" => Op::Conv { width: number("width")?, kernel: number("kernel")? },
            "scan" => Op::Scan {
                kind: text("kind")?.parse()?,
                heads: number("heads")?,
                head_dim: number("head_dim")?,
                state: number("state")?,
                groups: number("groups")?,
            },
            "input" => Op::Input { width: number("width")?, kind: text("kind")?.parse()? },
            "activation" => Op::Activation { kind: text("kind")?.parse()?, width: number("width")? },
            "gate" => Op::Gate { kind: text("kind")?.parse()?, width: number("width")? },
            "add" => Op::Add { width: number("width")? },
            "cross-entropy" => Op::CrossEntropy { vocab: number("vocab")? },
            _ => return Err(format!("`{name}` is no op")),
        })
    }
}
