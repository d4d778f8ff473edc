//! Reading HTML back: which tags are open, what a section says as plain text. Small, strict, for tests only.

/// Elements that have no closing tag.
const VOID: [&str; 4] = ["meta", "br", "hr", "input"];
/// Elements whose content is no markup: up to their closing tag it is skipped.
const RAW: [&str; 2] = ["script", "style"];

/// A piece of a page.
enum Token<'a> {
    Open(&'a str, bool),
    Close(&'a str),
    Text(&'a str),
}

/// Splits markup into tags and text; a `<` that starts no tag, or a quote left open, is an error.
fn tokens(html: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        if at > 0 {
            tokens.push(Token::Text(&rest[..at]));
        }
        let end = tag_end(&rest[at..]).ok_or_else(|| format!("a tag is left open: {:.60}", &rest[at..]))?;
        let tag = &rest[at + 1..at + end];
        rest = &rest[at + end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            tokens.push(Token::Close(name));
        } else if !tag.starts_with('!') {
            let name = tag.split([' ', '/']).next().unwrap_or_default();
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
                return Err(format!("`<{tag}>` is no tag"));
            }
            tokens.push(Token::Open(name, tag.ends_with('/') || VOID.contains(&name)));
            if RAW.contains(&name) {
                let close = format!("</{name}>");
                rest = &rest[rest.find(&close).ok_or_else(|| format!("{name} is left open"))?..];
            }
        }
    }
    if !rest.is_empty() {
        tokens.push(Token::Text(rest));
    }
    Ok(tokens)
}

/// Where a tag that starts at 0 ends, quoted attributes skipped.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quoted = false;
    tag.char_indices().find_map(|(k, c)| {
        quoted ^= c == '"';
        (c == '>' && !quoted).then_some(k)
    })
}

/// Every element that was opened is closed, in order.
pub(crate) fn check_balanced(html: &str) -> Result<(), String> {
    let mut open = Vec::new();
    for token in tokens(html)? {
        match token {
            Token::Open(name, false) => open.push(name),
            Token::Close(name) => match open.pop() {
                Some(top) if top == name => {}
                top => return Err(format!("</{name}> closes {top:?}")),
            },
            Token::Open(_, true) | Token::Text(_) => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("left open: {open:?}")) }
}

/// The markup of a section.
pub(crate) fn section<'a>(html: &'a str, id: &str) -> Option<&'a str> {
    let from = html.find(&format!("<section id=\"{id}\""))?;
    let to = html[from..].find("</section>")? + from;
    Some(&html[from..to + "</section>".len()])
}

/// What a reader sees of some markup: a line per block, cells joined by bars; drawings left out.
pub(crate) fn text(html: &str) -> String {
    let mut out = String::new();
    let mut drawings = 0;
    for token in tokens(html).expect("sound markup") {
        match token {
            Token::Open("svg", false) => drawings += 1,
            Token::Close("svg") => drawings -= 1,
            Token::Text(t) if drawings == 0 => out.push_str(t),
            Token::Close("td" | "th") => out.push_str(" | "),
            Token::Close("p" | "tr" | "h2" | "h3" | "h4" | "li" | "button" | "summary" | "pre" | "div") => {
                out.push('\n')
            }
            Token::Close("span") => out.push(' '),
            Token::Open(..) | Token::Close(_) | Token::Text(_) => {}
        }
    }
    let plain = out
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
        .replace(['\u{a0}', '\u{202f}'], " ");
    let lines = plain.lines().map(|l| l.trim_end().trim_end_matches('|').trim()).filter(|l| !l.is_empty());
    lines.map(|l| format!("{l}\n")).collect()
}
