//! Files the command line reads and writes. A written file appears whole or not at all: it is written under a temporary
//! name beside its place and renamed.

use crate::Failure;
use meshwright_ir::program::{Checked, Program};
use meshwright_ir::{Plan, Trace};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Largest file that is read: a plan of a thousand stages is far smaller.
const LARGEST: u64 = 1 << 30;

/// Reads a text file.
pub fn read(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let found = std::fs::metadata(path)
        .map_err(|e| Failure::new(format!("{name}: {e}"), "name a file that exists"))?;
    if found.is_dir() {
        return Err(Failure::new(format!("{name} is a folder"), "name a file"));
    }
    if found.len() > LARGEST {
        return Err(Failure::new(
            format!("{name} has {} bytes", found.len()),
            "name a plan, program, trace or job file",
        ));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::new(format!("{name}: {e}"), "make it readable"))?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(format!("{name} is not text"), "name a plan, program, trace or job file"))
}

/// Largest document that is unpacked: the largest published sharding problem has some 300 MB.
const UNPACKED: u64 = 8 << 30;

/// Reads a file's bytes, unpacked if they are gzip.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display();
    let found = std::fs::metadata(path)
        .map_err(|e| Failure::new(format!("{name}: {e}"), "name a file that exists"))?;
    if found.is_dir() {
        return Err(Failure::new(format!("{name} is a folder"), "name a file"));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::new(format!("{name}: {e}"), "make it readable"))?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    let mut unpack = flate2::read::MultiGzDecoder::new(bytes.as_slice()).take(UNPACKED);
    let broken =
        |e| Failure::new(format!("{name}: no gzip that can be unpacked: {e}"), "pack it anew with gzip");
    unpack.read_to_end(&mut unpacked).map_err(broken)?;
    Ok(unpacked)
}

/// Writes a file whole or not at all. A link is followed; what is no file at all (a pipe, `/dev/null`) is written as it is.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_with(path, |out| out.write_all(text.as_bytes()))
}

/// Writes a file as [`write`] does, piece by piece.
fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let filled = |place: &Path| {
        let mut out = BufWriter::with_capacity(1 << 16, File::create(place)?);
        fill(&mut out).and_then(|()| out.flush())
    };
    let written = match place(path)? {
        Place::Stream => filled(path),
        Place::File { target, temporary } => {
            let whole = filled(&temporary).and_then(|()| std::fs::rename(&temporary, target));
            whole.inspect_err(|_| drop(std::fs::remove_file(&temporary)))
        }
    };
    written.map_err(|e| unwritable(path, e))
}

/// Makes sure, before any work is done, that every output can be written, and that none would overwrite an input or
/// another output.
pub fn check_outputs(inputs: &[&Path], outputs: &[Option<&PathBuf>]) -> Result<(), Failure> {
    // What a path leads to: of a file that is yet to be made, the folder counts.
    let identity = |p: &Path| match (p.canonicalize(), p.parent(), p.file_name()) {
        (Ok(whole), ..) => Some(whole),
        (Err(_), Some(folder), Some(file)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folder.canonicalize().ok().map(|f| f.join(file))
        }
        (Err(_), ..) => None,
    };
    let mut taken: Vec<PathBuf> = inputs.iter().filter_map(|p| identity(p)).collect();
    for path in outputs.iter().flatten() {
        let Place::File { temporary, .. } = place(path)? else { continue };
        std::fs::write(&temporary, "").map_err(|e| unwritable(path, e))?;
        let _ = std::fs::remove_file(&temporary);
        let identity = identity(path);
        if identity.as_ref().is_some_and(|p| taken.contains(p)) {
            let message = format!("{} would overwrite an input or another output", path.display());
            return Err(Failure::new(message, "name another file"));
        }
        taken.extend(identity);
    }
    Ok(())
}

/// Where an output goes.
enum Place {
    /// Under a temporary name first, beside its target.
    File { target: PathBuf, temporary: PathBuf },
    /// No regular file: nothing to rename.
    Stream,
}

fn place(path: &Path) -> Result<Place, Failure> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if target.is_dir() || target.file_name().is_none() {
        return Err(Failure::new(format!("{} is a folder", path.display()), "name a file"));
    }
    if target.exists() && !target.is_file() {
        return Ok(Place::Stream);
    }
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message = format!("{}: its folder does not exist", path.display());
        return Err(Failure::new(message, "make the folder first"));
    }
    let temporary = folder.join(format!(".meshwright.{}.part", std::process::id()));
    Ok(Place::File { target, temporary })
}

fn unwritable(path: &Path, e: std::io::Error) -> Failure {
    Failure::new(format!("{}: {e}", path.display()), "name a place that can be written")
}

/// A document as JSON with a final newline.
pub fn to_json<T: Serialize>(document: &T) -> String {
    serde_json::to_string_pretty(document).expect("documents hold finite numbers and string keys") + "\n"
}

/// Reads and checks a plan.
pub fn read_plan(path: &Path) -> Result<Plan, Failure> {
    plan_from(&path.display().to_string(), &read(path)?)
}

/// Reads and checks a plan from its text.
pub fn plan_from(file: &str, text: &str) -> Result<Plan, Failure> {
    let fix = "write it anew with `meshwright plan JOB -o plan.json`";
    let plan: Plan =
        serde_json::from_str(text).map_err(|e| Failure::new(format!("{file}: no plan: {e}"), fix))?;
    plan.check().map_err(|e| Failure::in_file(file, e))?;
    Ok(plan)
}

/// Reads and checks a program.
pub fn program_from(file: &str, text: &str) -> Result<Checked, Failure> {
    let fix = "write it anew with `meshwright lower PLAN -o step.program`";
    let program: Program = text.parse().map_err(|e| Failure::new(format!("{file}, {e}"), fix))?;
    program.check().map_err(|e| Failure::new(format!("{file}: {e}"), fix))
}

/// Whether text is a program rather than a plan.
pub fn is_program(text: &str) -> bool {
    text.trim_start().starts_with("meshwright-program")
}

/// Writes a trace file: events for Perfetto, and the trace itself under a key of its own. Nothing of it is held as text.
pub fn write_trace(path: &Path, program: &Program, trace: &Trace) -> Result<(), Failure> {
    write_with(path, |out| {
        meshwright_reports::perfetto(program, trace, out)?;
        out.write_all(b",\n\"meshwright\":")?;
        serde_json::to_writer(&mut *out, trace)?;
        out.write_all(b"}\n")
    })
}

/// Reads the trace that [`write_trace`] wrote.
pub fn read_trace(path: &Path) -> Result<Trace, Failure> {
    #[derive(serde::Deserialize)]
    struct Document {
        meshwright: Trace,
    }
    let file = path.display().to_string();
    let fix = "write it anew with `--trace`";
    let document: Document = serde_json::from_str(&read(path)?)
        .map_err(|e| Failure::new(format!("{file}: no trace: {e}"), fix))?;
    Ok(document.meshwright)
}
