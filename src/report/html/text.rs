//! Text in HTML: every string of a report comes from input and is escaped here, at one place.

use serde_json::Value;

/// How much of a report is shown, so that a page stays small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Entries of one list or rows of one table.
    pub items: usize,
    /// Characters of one string.
    pub chars: usize,
}

impl Limits {
    pub const USUAL: Limits = Limits {
        items: 200,
        chars: 4_000,
    };

    /// The next smaller page; nothing where lists have one entry already.
    pub fn halved(self) -> Option<Limits> {
        (self.items > 1).then(|| Limits {
            items: self.items / 2,
            chars: (self.chars / 2).max(80),
        })
    }

    /// A string, escaped and cut with what was cut said.
    pub fn text(self, text: &str) -> String {
        let length = text.chars().count();
        if length <= self.chars {
            return escaped(text);
        }
        let start: String = text.chars().take(self.chars).collect();
        let more = length - self.chars;
        format!("{}… <i>({more} characters more)</i>", escaped(&start))
    }

    /// A value of JSON as people read it.
    pub fn value(self, value: &Value) -> String {
        match value {
            Value::Null => "—".to_string(),
            Value::String(text) => self.text(text),
            Value::Array(items) => self.text(&words(items).join(", ")),
            other => self.text(&other.to_string()),
        }
    }

    /// A list, or nothing where it is empty.
    pub fn list(self, items: &[String]) -> String {
        if items.is_empty() {
            return String::new();
        }
        let shown = items.iter().take(self.items);
        let mut lines: Vec<String> = shown.map(|item| format!("<li>{item}</li>")).collect();
        if items.len() > self.items {
            let more = items.len() - self.items;
            lines.push(format!(
                "<li><i>and {more} more: the JSON has them</i></li>"
            ));
        }
        format!("<ul>\n{}\n</ul>\n", lines.join("\n"))
    }

    /// A table of cells that are HTML already; the first cell of a row is its heading.
    pub fn table(self, heads: &[&str], rows: &[Vec<String>]) -> String {
        let heads = heads
            .iter()
            .map(|head| format!("<th scope=\"col\">{head}</th>"));
        let mut text = format!(
            "<div class=\"scroll\"><table><thead><tr>{}</tr></thead>\n<tbody>\n",
            heads.collect::<String>()
        );
        for row in rows.iter().take(self.items) {
            let cells = row.iter().enumerate().map(|(i, cell)| match i {
                0 => format!("<th scope=\"row\">{cell}</th>"),
                _ => format!("<td>{cell}</td>"),
            });
            text.push_str(&format!("<tr>{}</tr>\n", cells.collect::<String>()));
        }
        text.push_str("</tbody></table></div>\n");
        if rows.len() > self.items {
            let more = rows.len() - self.items;
            text.push_str(&format!(
                "<p class=\"soft\">And {more} more rows: the JSON has them.</p>\n"
            ));
        }
        text
    }
}

/// Escaped for the text and for the quoted attributes of HTML. Control characters, which steer
/// terminals and hide text, and marks that turn its direction are written out.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            '\n' => shown.push('\n'),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                shown.extend(c.escape_unicode());
            }
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// The array under a key; an empty one where there is none.
pub(super) fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object[key].as_array().map_or(&[], Vec::as_slice)
}

/// Scalars as words.
pub(super) fn words(items: &[Value]) -> Vec<String> {
    let word = |item: &Value| match item {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    items.iter().map(word).collect()
}

/// The text under a key, where there is one.
pub(super) fn string<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object[key].as_str().filter(|text| !text.is_empty())
}

/// A titled part; nothing where it has no content.
pub(super) fn part(title: &str, content: &str) -> String {
    match content.is_empty() {
        true => String::new(),
        false => format!("<h2>{title}</h2>\n{content}"),
    }
}
