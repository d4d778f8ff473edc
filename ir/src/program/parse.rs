//! Reading the text form of a program. Whatever the text, the reader returns a program whose numbers can be added and
//! multiplied without overflow, or the line and the word at fault.

use super::{
    Action, Buffer, BufferClass, CodeBuilder, Collective, CollectiveKind, Exchange, IdKind, Kernel, OpKernel,
    Parameter, Pass, Program, Stream,
};
use crate::{AxisSet, Bytes, DType, Init, Mesh, Real};
use std::str::FromStr;
use thiserror::Error;

/// A line of a program that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// Line number from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

/// Most elements of anything that are believed, and most bytes of an arena: numbers that fit here can be multiplied by an
/// element's width and summed over a role without overflow.
const MOST_ELEMENTS: u64 = 1 << 50;
const MOST_BYTES: u64 = 1 << 60;

/// The words of one line, taken in order.
struct Words<'t> {
    words: std::str::SplitWhitespace<'t>,
}

impl<'t> Words<'t> {
    fn next(&mut self, what: &str) -> Result<&'t str, String> {
        self.words.next().ok_or_else(|| format!("{what} is missing"))
    }
    fn keyed(&mut self, key: &str) -> Result<&'t str, String> {
        let word = self.next(key)?;
        word.strip_prefix(key)
            .and_then(|w| w.strip_prefix('='))
            .ok_or_else(|| format!("`{word}` should be `{key}=…`"))
    }
    fn parsed<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.next(what)?;
        word.parse().map_err(|_| format!("`{word}` is no {what}"))
    }
    fn number<T: FromStr>(&mut self, key: &str) -> Result<T, String> {
        let word = self.keyed(key)?;
        word.parse().map_err(|_| format!("`{word}` is no number for {key}"))
    }
    /// A number of elements.
    fn size(&mut self, key: &str) -> Result<u64, String> {
        let n = self.number(key)?;
        believed(&[n])?;
        Ok(n)
    }
    fn optional<T: FromStr>(&mut self, key: &str) -> Result<Option<T>, String> {
        let word = self.keyed(key)?;
        if word == "-" {
            Ok(None)
        } else {
            word.parse().map(Some).map_err(|_| format!("`{word}` is no number for {key}"))
        }
    }
    fn optional_size(&mut self, key: &str) -> Result<Option<u64>, String> {
        let n: Option<u64> = self.optional(key)?;
        believed(n.as_slice())?;
        Ok(n)
    }
    fn list(&mut self, key: &str) -> Result<Vec<u32>, String> {
        parse_list(self.keyed(key)?)
    }
    /// `extent/axes`.
    fn cut(&mut self, key: &str) -> Result<(u64, AxisSet), String> {
        let word = self.keyed(key)?;
        let (n, axes) = word.split_once('/').ok_or_else(|| format!("`{word}` should be extent/axes"))?;
        let n = n.parse().map_err(|_| format!("`{n}` is no extent"))?;
        believed(&[n])?;
        Ok((n, axes.parse()?))
    }
    fn end(mut self) -> Result<(), String> {
        self.words.next().map_or(Ok(()), |w| Err(format!("`{w}` is one word too many")))
    }
}

/// Refuses a tensor of more elements than any memory holds.
fn believed(dims: &[u64]) -> Result<(), String> {
    let product = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).filter(|n| *n <= MOST_ELEMENTS);
    product.map(|_| ()).ok_or_else(|| {
        let dims: Vec<_> = dims.iter().map(u64::to_string).collect();
        format!("{} elements are more than any memory holds", dims.join("x"))
    })
}

fn unescape(word: &str) -> Result<String, String> {
    if word == "%;" {
        return Ok(String::new());
    }
    let mut parts = word.split('%');
    let mut name = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (code, rest) = part.split_once(';').ok_or_else(|| format!("`{word}` has a bad escape"))?;
        name.push(
            u32::from_str_radix(code, 16)
                .ok()
                .and_then(char::from_u32)
                .ok_or_else(|| format!("`{word}` has a bad escape"))?,
        );
        name.push_str(rest);
    }
    Ok(name)
}

fn parse_list(word: &str) -> Result<Vec<u32>, String> {
    if word == "-" {
        return Ok(vec![]);
    }
    word.split(',').map(|n| n.parse().map_err(|_| format!("`{n}` is no position"))).collect()
}

impl FromStr for Program {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut reader = Reader::default();
        for (n, line) in text.lines().enumerate() {
            reader.line(line).map_err(|message| ParseError { line: n + 1, message })?;
        }
        reader.finish().map_err(|message| ParseError { line: text.lines().count(), message })
    }
}

#[derive(Default)]
struct Reader {
    versioned: bool,
    mesh: Option<Mesh>,
    step: Option<(u64, u32)>,
    streams: Vec<Stream>,
    kernels: Vec<Kernel>,
    collectives: Vec<Collective>,
    exchanges: Vec<Exchange>,
    names: Vec<String>,
    roles: Vec<CodeBuilder>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut w = Words { words: rest.split_whitespace() };
        if !self.versioned && head != "meshwright-program" {
            return Err("a program starts with `meshwright-program 1`".into());
        }
        match head {
            "meshwright-program" => {
                let version: u32 = w.parsed("version")?;
                if version != 1 {
                    return Err(format!("version {version}; this program reads version 1"));
                }
                self.versioned = true;
            }
            "mesh" => {
                self.mesh = Some(rest.parse()?);
                return Ok(());
            }
            "step" => self.step = Some((w.number("tokens")?, w.number("micro_batches")?)),
            "stream" => self.streams.push(parse_stream(&mut w)?),
            "kernel" => {
                self.kernels.push(parse_kernel(rest)?);
                return Ok(());
            }
            "collective" => self.collectives.push(parse_collective(&mut w)?),
            "exchange" => self.exchanges.push(Exchange {
                peer: w.parsed("peer")?,
                send: w.optional_size("send")?,
                receive: w.optional_size("receive")?,
                dtype: w.parsed("element type")?,
            }),
            "name" => self.names.push(unescape(w.next("name")?)?),
            "role" => {
                let role: usize = w.parsed("role")?;
                if role != self.roles.len() {
                    return Err(format!("role {role} should be role {}", self.roles.len()));
                }
                let mut builder = CodeBuilder::default();
                builder.code.arena = Bytes(w.number("arena")?);
                if builder.code.arena.0 > MOST_BYTES {
                    return Err(format!("an arena of {} bytes is beyond any memory", builder.code.arena.0));
                }
                builder.code.loss = w.optional("loss")?;
                builder.code.norm = w.optional("norm")?;
                self.roles.push(builder);
            }
            "buffer" => {
                let buffer = parse_buffer(&mut w)?;
                self.role()?.buffer(buffer);
            }
            "param" => {
                let parameter = parse_parameter(&mut w)?;
                self.role()?.code.parameters.push(parameter);
            }
            action => {
                let action = parse_action(action)?;
                let stream = w.next("stream")?;
                let stream = stream
                    .strip_prefix('s')
                    .and_then(|s| s.parse().ok())
                    .ok_or_else(|| format!("`{stream}` is no stream"))?;
                let (micro_batch, block) = (w.number("mb")?, w.number("b")?);
                let (reads, writes, after) = (w.list("r")?, w.list("w")?, w.list("a")?);
                if reads.len().max(writes.len()).max(after.len()) > usize::from(u16::MAX) {
                    return Err("more than 65,535 operands".into());
                }
                self.role()?.push(action, stream, micro_batch, block, &reads, &writes, &after);
            }
        }
        w.end()
    }

    fn role(&mut self) -> Result<&mut CodeBuilder, String> {
        self.roles.last_mut().ok_or_else(|| "stands before the first role".into())
    }

    fn finish(self) -> Result<Program, String> {
        let (tokens, micro_batches) = self.step.ok_or("there is no `step` line")?;
        Ok(Program {
            mesh: self.mesh.ok_or("there is no `mesh` line")?,
            tokens,
            micro_batches,
            streams: self.streams,
            kernels: self.kernels,
            collectives: self.collectives,
            exchanges: self.exchanges,
            names: self.names,
            roles: self.roles.into_iter().map(|b| b.code).collect(),
        })
    }
}

fn parse_action(word: &str) -> Result<Action, String> {
    let kind = word.chars().next().unwrap_or(' ');
    let number = || {
        word.get(1..)
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| format!("`{word}` begins no line of a program"))
    };
    match kind {
        'k' => Ok(Action::Compute(number()?)),
        'c' => Ok(Action::Collective(number()?)),
        'x' => Ok(Action::Exchange(number()?)),
        _ => Err(format!("`{word}` begins no line of a program")),
    }
}

fn parse_stream(w: &mut Words<'_>) -> Result<Stream, String> {
    match w.next("stream")? {
        "compute" => Ok(Stream::Compute),
        "collective" => Ok(Stream::Collective(w.parsed("axes")?)),
        "link" => Ok(Stream::Link(w.parsed("offset")?)),
        other => Err(format!("`{other}` is no stream")),
    }
}

fn parse_collective(w: &mut Words<'_>) -> Result<Collective, String> {
    let kind = match w.next("collective")? {
        "all-reduce" => CollectiveKind::AllReduceSum,
        "all-reduce-max" => CollectiveKind::AllReduceMax,
        "all-gather" => CollectiveKind::AllGather,
        "reduce-scatter" => CollectiveKind::ReduceScatter,
        "all-to-all" => CollectiveKind::AllToAll,
        other => return Err(format!("`{other}` is no collective")),
    };
    let axes = w.parsed("axes")?;
    let stages = match w.keyed("stages")? {
        "*" => None,
        members => Some(parse_list(members)?),
    };
    Ok(Collective {
        kind,
        axes,
        stages,
        elements: w.size("n")?,
        dtype: w.parsed("element type")?,
        algorithm: w.parsed("algorithm")?,
    })
}

fn parse_buffer(w: &mut Words<'_>) -> Result<Buffer, String> {
    let (name, dtype, elements): (u32, DType, u64) =
        (w.parsed("name")?, w.parsed("element type")?, w.parsed("size")?);
    let offset = w.next("offset")?;
    let offset = offset
        .strip_prefix('@')
        .and_then(|o| o.parse().ok())
        .ok_or_else(|| format!("`{offset}` is no offset"))?;
    let class = w.next("class")?;
    let class = BufferClass::ALL
        .into_iter()
        .find(|c| c.to_string() == class)
        .ok_or_else(|| format!("`{class}` is no class of buffer"))?;
    if elements > MOST_ELEMENTS || offset > MOST_BYTES {
        return Err("a size or offset beyond any memory".into());
    }
    Ok(Buffer { name, dtype, elements, offset: Bytes(offset), class })
}

fn parse_parameter(w: &mut Words<'_>) -> Result<Parameter, String> {
    let name = unescape(w.next("name")?)?;
    let shape = w.next("shape")?;
    let dims = shape.split('x').filter(|_| shape != "-");
    let dims: Vec<u64> =
        dims.map(|n| n.parse().map_err(|_| format!("`{shape}` is no shape"))).collect::<Result<_, _>>()?;
    believed(&dims)?;
    let layout = w.parsed("layout")?;
    let init = match w.next("start")? {
        "ones" => Init::Ones,
        "zeros" => Init::Zeros,
        word => {
            let std =
                word.strip_prefix("normal=").and_then(|s| s.parse::<f64>().ok()).filter(|s| s.is_finite());
            Init::Normal { std: Real(std.ok_or_else(|| format!("`{word}` is no start"))?) }
        }
    };
    Ok(Parameter {
        name,
        shape: dims,
        layout,
        init,
        decays: w.number("decays")?,
        storage: w.number("storage")?,
        weight: w.number("w")?,
        master: w.optional("m")?,
        gradient: w.number("g")?,
        moments: w.list("s")?,
    })
}

fn parse_kernel(text: &str) -> Result<Kernel, String> {
    let (head, rest) = text.split_once(' ').ok_or("a kernel without parts")?;
    let mut w = Words { words: rest.split_whitespace() };
    let kernel = match head {
        "op" => return parse_op_kernel(rest),
        "add" => Kernel::Add { dtype: w.parsed("element type")?, elements: w.size("n")? },
        "slice" => Kernel::Slice {
            dtype: w.parsed("element type")?,
            axes: w.number("axes")?,
            outer: w.size("outer")?,
            piece: w.size("piece")?,
            inner: w.size("inner")?,
        },
        "pack" => Kernel::Pack {
            dtype: w.parsed("element type")?,
            outer: w.size("outer")?,
            parts: w.size("parts")?,
            inner: w.size("inner")?,
        },
        "unpack" => Kernel::Unpack {
            dtype: w.parsed("element type")?,
            outer: w.size("outer")?,
            parts: w.size("parts")?,
            inner: w.size("inner")?,
        },
        "load" => {
            let what = match w.next("ids")? {
                "tokens" => IdKind::Tokens,
                "targets" => IdKind::Targets,
                other => return Err(format!("`{other}` are no ids")),
            };
            let ((batch, batch_axes), (sequence, sequence_axes)) = (w.cut("batch")?, w.cut("sequence")?);
            Kernel::Load { what, batch, sequence, batch_axes, sequence_axes }
        }
        "sum-squares" => Kernel::SumSquares {
            elements: w.size("n")?,
            replicas: w.size("replicas")?,
            accumulate: w.number("accumulate")?,
            piece: w.number("piece")?,
        },
        "update" => Kernel::Update {
            optimizer: w.parsed("optimizer")?,
            dtype: w.parsed("element type")?,
            elements: w.size("n")?,
            decays: w.number("decays")?,
            piece: w.number("piece")?,
        },
        other => return Err(format!("`{other}` is no kernel")),
    };
    w.end()?;
    kernel.check()?;
    Ok(kernel)
}

fn parse_op_kernel(text: &str) -> Result<Kernel, String> {
    let (front, cuts) = text.split_once(']').ok_or("an op without its closing bracket")?;
    let mut words = front.splitn(3, ' ');
    let (pass, dtype, op) =
        (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (pass, accumulate) = pass.strip_suffix('+').map_or((pass, false), |p| (p, true));
    let passes = [Pass::Max, Pass::Sum, Pass::Forward, Pass::BackwardInput, Pass::BackwardWeight];
    let pass =
        passes.into_iter().find(|p| p.to_string() == pass).ok_or_else(|| format!("`{pass}` is no pass"))?;
    let op: crate::Op = format!("{op}]").parse()?;
    let mut w = Words { words: cuts.split_whitespace() };
    let cuts = op.indices().iter().map(|name| w.cut(name)).collect::<Result<Vec<_>, _>>()?;
    w.end()?;
    let (extents, axes) = cuts.into_iter().unzip();
    let kernel = Kernel::Op(OpKernel { op, pass, extents, axes, accumulate, dtype: dtype.parse()? });
    kernel.check()?;
    Ok(kernel)
}
