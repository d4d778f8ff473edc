//! The page as a document: offline, well formed, escaped, small, the same twice, and readable in both schemes.

use crate::fixture::{Fixture, LARGE, PIPELINE, SMALL, Spec};
use crate::markup::{check_balanced, section};
use meshwright_ir::{Bytes, Time, Trace};
use meshwright_reports::{Report, html, twin};
use std::collections::BTreeMap;

const SCRIPT: &str = "<script>alert(1)</script>\"'&\u{202e}";
const SECTIONS: [&str; 13] = [
    "answer",
    "timeline",
    "breakdown",
    "errors",
    "memory",
    "cluster",
    "load",
    "loss",
    "candidates",
    "why",
    "strategies",
    "assumptions",
    "repeat",
];
/// Turns the text after it around; a name may hold it.
const OVERRIDE: char = '\u{202e}';

#[test]
fn two_renders_are_equal() {
    for spec in [SMALL, PIPELINE] {
        assert_eq!(html(&Fixture::new(&spec).report()), html(&Fixture::new(&spec).report()));
    }
}

#[test]
fn nothing_is_fetched_and_only_our_script_runs() {
    for spec in [SMALL, PIPELINE] {
        let page = html(&Fixture::new(&spec).report());
        for word in [
            "http:", "https:", " src=", "@import", "<link", "fetch(", "XMLHttp", "import(", "<iframe",
            "url(h", "xlink",
        ] {
            assert!(!page.contains(word), "the page holds `{word}`");
        }
        assert!(page.contains("default-src 'none'"), "a policy forbids what we overlooked");
        let scripts = page.matches("<script").count();
        assert_eq!(
            scripts,
            1 + page.matches("<script id=\"spans\" type=\"application/json\">").count()
                + page.matches("<script id=\"twin\" type=\"application/json\">").count()
        );
        let fragments = page.matches("url(").count();
        assert_eq!(
            fragments,
            page.matches("url(#p-").count(),
            "only the page's own patterns are referred to"
        );
    }
}

#[test]
fn every_section_is_there_and_closed() {
    for spec in [SMALL, PIPELINE, Spec { poison: Some(SCRIPT), ..PIPELINE }] {
        let page = html(&Fixture::new(&spec).report());
        check_balanced(&page).unwrap();
        for id in SECTIONS {
            check_balanced(section(&page, id).unwrap_or_else(|| panic!("no section {id}"))).unwrap();
        }
    }
}

#[test]
fn a_plan_alone_has_the_sections_that_need_no_run() {
    let fixture = Fixture::new(&SMALL);
    let page = html(&Report::new(&fixture.plan, &fixture.command));
    check_balanced(&page).unwrap();
    let there: Vec<_> = SECTIONS.into_iter().filter(|id| section(&page, id).is_some()).collect();
    assert_eq!(there, ["answer", "cluster", "candidates", "why", "strategies", "assumptions", "repeat"]);
}

#[test]
fn strings_of_users_are_escaped_everywhere() {
    let page = html(&Fixture::new(&Spec { poison: Some(SCRIPT), ..PIPELINE }).report());
    assert!(!page.contains("<script>alert") && !page.contains("alert(1)</script"));
    assert!(!page.contains(OVERRIDE) && page.contains("⟨U+202E⟩") && page.contains("\\u202e"));
    // Names of blocks and ops are plain words by `Model::check`; these sections show strings that may be anything.
    for id in ["answer", "cluster", "load", "candidates", "why", "assumptions", "repeat"] {
        let section = section(&page, id).unwrap();
        assert!(section.contains("&lt;script&gt;alert(1)"), "section {id} shows no string of the user");
    }
    // In the title of the page, in titles and labels of drawings, and in the command.
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;";
    for start in [
        "<title>gpt-nano ",
        "aria-label=\"Loss of gpt-nano ",
        "<code id=\"command\">meshwright auto job.toml",
    ] {
        let at = page.find(start).unwrap_or_else(|| panic!("no {start}"));
        assert!(page[at..at + 400].contains(escaped), "{start}");
    }
    assert!(page.matches(&format!("{escaped}'&amp;")).count() > 10);
}

#[test]
fn half_a_million_spans_stay_below_a_megabyte() {
    let fixture = Fixture::new(&LARGE);
    assert!(fixture.measured.spans.len() >= 500_000, "{} spans", fixture.measured.spans.len());
    assert_eq!(fixture.measured.ranks.len(), 64);
    let page = html(&fixture.report());
    check_balanced(&page).unwrap();
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(page.contains("drawn in columns of"), "the page says what it aggregates");
}

#[test]
fn values_that_are_no_numbers_are_said_not_drawn() {
    let fixture = Fixture::new(&SMALL);
    let losses = [5.5, f64::NAN, f64::INFINITY, 4.0];
    let page = html(&Report { losses: &losses, step_times_s: &[f64::NAN], error: None, ..fixture.report() });
    check_balanced(&page).unwrap();
    assert!(page.contains("not a number") && !page.contains("NaN") && !page.contains("inf"));
    let mut plan = fixture.plan.clone();
    plan.prediction.step_time_band_s = (f64::NAN, f64::INFINITY);
    plan.prediction.step_time_s = f64::NAN;
    let page = html(&Report { plan: &plan, ..fixture.report() });
    assert!(page.contains("predicted unknown a step") && !page.contains("NaN"));
}

#[test]
fn nothing_measured_and_nothing_predicted_still_draws() {
    let fixture = Fixture::new(&PIPELINE);
    let empty = Trace { step_time: Time::ZERO, spans: vec![], memory: vec![], ..fixture.predicted.clone() };
    let mut plan = fixture.plan.clone();
    plan.prediction.memory_limit_bytes = Bytes::ZERO;
    plan.prediction.closed_form_s = 0.0;
    plan.search.points.iter_mut().for_each(|c| c.closed_form_s = Some(0.0));
    let page = html(&Report {
        plan: &plan,
        predicted: Some(&empty),
        measured: Some(&empty),
        losses: &[0.0, 0.0],
        step_times_s: &[0.0, 0.0],
        ..fixture.report()
    });
    check_balanced(&page).unwrap();
    assert!(section(&page, "timeline").is_none() && !page.contains("NaN"));
    let none = Trace { ranks: vec![], ..empty };
    check_balanced(&html(&Report { predicted: Some(&none), measured: None, ..fixture.report() })).unwrap();
}

/// Custom properties of the stylesheet, light and dark.
fn themes(page: &str) -> [BTreeMap<String, String>; 2] {
    let blocks: Vec<&str> = page.split(":root{").skip(1).map(|b| &b[..b.find('}').unwrap()]).collect();
    let read = |block: &str| {
        let pairs = block.split(';').filter_map(|d| d.trim().split_once(':'));
        pairs.filter(|(k, _)| k.starts_with("--")).map(|(k, v)| (k[2..].to_string(), v.to_string())).collect()
    };
    [read(blocks[0]), read(blocks[1])]
}

/// Relative luminance and contrast of WCAG 2.1.
fn contrast(a: &str, b: &str) -> f64 {
    let luminance = |hex: &str| {
        let channel = |k: usize| {
            let c = f64::from(u8::from_str_radix(&hex[k..k + 2], 16).unwrap()) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn both_schemes_meet_aa_contrast() {
    let page = html(&Fixture::new(&SMALL).report());
    let [light, dark] = themes(&page);
    assert_eq!(light.keys().collect::<Vec<_>>(), dark.keys().collect::<Vec<_>>());
    for theme in [&light, &dark] {
        for ground in ["bg", "panel"] {
            for text in ["fg", "muted", "accent"] {
                let c = contrast(&theme[text], &theme[ground]);
                assert!(c >= 4.5, "{text} on {ground}: {c:.2}");
            }
        }
        let fills =
            ["forward", "backward", "collective", "exchange", "optimizer", "rearrange", "compute", "idle"];
        for fill in fills.into_iter().chain(["bad", "s5", "s6"]) {
            for ground in ["bg", "track"] {
                let c = contrast(&theme[fill], &theme[ground]);
                assert!(c >= 3.0, "{fill} on {ground}: {c:.2}");
            }
        }
    }
}

#[test]
fn the_twin_is_the_json_in_the_page() {
    for spec in [SMALL, Spec { poison: Some(SCRIPT), ..PIPELINE }] {
        let fixture = Fixture::new(&spec);
        let (page, twin) = (html(&fixture.report()), twin(&fixture.report()));
        let start = "<script id=\"twin\" type=\"application/json\">";
        let from = page.find(start).expect("a twin") + start.len();
        let inside = &page[from..from + page[from..].find("</script>").expect("its end")];
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(read(inside), read(&twin));
        assert!(!twin.contains(OVERRIDE) && !twin.contains('<'));
        assert_eq!(read(&twin)["model"], fixture.plan.job.model.name.as_str());
        let step = read(&twin)["prediction"]["step_time_s"].as_f64();
        assert_eq!(step, Some(fixture.plan.prediction.step_time_s));
    }
}
