//! Renders the tests' fixtures into a folder, to be looked at: `cargo run --example render -- FOLDER`.

#[path = "../tests/it/fixture/mod.rs"]
mod fixture;

use fixture::{Fixture, LARGE, PIPELINE, SMALL, Spec};
use meshwright_reports::{Report, html, loss_csv, perfetto};
use std::io::Write;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    std::fs::create_dir_all(&folder)?;
    let wide = Spec { mesh: "pp=16 dp=4 tp=8", nodes: 64, micro_batches: 32, ..LARGE };
    for (name, spec) in [("small", SMALL), ("pipeline", PIPELINE), ("large", LARGE), ("wide", wide)] {
        let fixture = Fixture::new(&spec);
        std::fs::write(folder.join(format!("{name}.html")), html(&fixture.report()))?;
        if name == "small" {
            let bare = Report::new(&fixture.plan, &fixture.command);
            std::fs::write(folder.join("plan-only.html"), html(&bare))?;
            let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("trace.json"))?);
            perfetto(&fixture.program, &fixture.predicted, &mut file)?;
            file.write_all(b"}\n")?;
            std::fs::write(folder.join("loss.csv"), loss_csv(&fixture.losses, &fixture.step_times_s))?;
        }
    }
    Ok(())
}
