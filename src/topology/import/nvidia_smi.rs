//! The matrix of `nvidia-smi topo -m`.

use std::ops::Range;

use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::topology::{ChannelGraph, Topology};

/// Rows or columns of a matrix that is read.
const DEVICES_MAX: usize = 1024;

/// A row: the device, and its cells with places.
struct Row {
    name: String,
    cells: Vec<(String, Range<usize>)>,
}

/// Whether a text has such a matrix: a header with GPU0, and a row of it.
pub(super) fn is_matrix(text: &str) -> bool {
    let plain = without_escapes(text);
    let mut lines = plain.lines().skip_while(|line| !is_header(line));
    lines.next().is_some() && lines.any(|line| line.trim_start().starts_with("GPU0"))
}

fn is_header(line: &str) -> bool {
    line.split_whitespace().next() == Some("GPU0") && line.split_whitespace().nth(1) != Some("X")
}

/// Terminals underline the header: escape sequences become blanks, so that places stay.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut in_escape = false;
    for c in text.chars() {
        in_escape |= c == '\u{1b}';
        match in_escape {
            true => plain.extend(std::iter::repeat_n(' ', c.len_utf8())),
            false => plain.push(c),
        }
        // `ESC [ 4 m`: a letter ends it.
        in_escape &= !c.is_ascii_alphabetic();
    }
    plain
}

fn is_device(word: &str) -> bool {
    let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    ["GPU", "NIC", "mlx5_", "mlx4_", "bnxt_re"]
        .iter()
        .any(|kind| word.strip_prefix(kind).is_some_and(number))
}

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let plain = without_escapes(&source.text);
    let (columns, rows) = matrix(source, &plain)?;
    let gpus = columns
        .iter()
        .filter(|name| name.starts_with("GPU"))
        .count();
    let in_order = columns.iter().take(gpus).enumerate();
    for (index, name) in in_order {
        if *name != format!("GPU{index}") {
            let message = format!("column {} is `{}`", index + 1, escaped(name));
            return Err(refuse(
                source,
                0..0,
                message,
                "expected the GPUs first, in order",
            ));
        }
    }
    check(source, &columns, &rows, gpus)?;
    let notes = notes(&columns, &rows, gpus);
    let topology = Topology {
        name: name_of(sources, given),
        hosts: given.hosts.unwrap_or(1),
        gpus_per_host: gpus as u32,
        hosts_per_nvlink_domain: 1,
        graph: ChannelGraph::ascending(gpus as u32),
        alone: None,
    };
    Ok(Imported {
        machine: Machine::Topology(topology),
        notes,
    })
}

fn refuse(source: &Source, span: Range<usize>, message: String, label: &str) -> Refused {
    let place = Place::new(source, span);
    Box::new(Diagnostic::error("matrix", message).at(&place, label))
}

fn matrix(source: &Source, plain: &str) -> Result<(Vec<String>, Vec<Row>), Refused> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut at = 0;
    for line in plain.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if columns.is_empty() {
            if is_header(line) {
                let words = line.split_whitespace().take_while(|word| is_device(word));
                columns = words.map(str::to_string).collect();
                if columns.len() > DEVICES_MAX {
                    let message = format!("more than {DEVICES_MAX} devices");
                    return Err(refuse(source, start..at, message, "in this header"));
                }
            }
            continue;
        }
        let mut words = line.split_whitespace().map(|word| {
            let offset = word.as_ptr() as usize - line.as_ptr() as usize;
            (word, start + offset..start + offset + word.len())
        });
        let Some((name, span)) = words.next().filter(|(name, _)| is_device(name)) else {
            // The legend follows.
            if rows.is_empty() || line.trim().is_empty() {
                continue;
            }
            break;
        };
        let expected = columns.get(rows.len());
        if expected.map(String::as_str) != Some(name) {
            let label = match expected {
                Some(expected) => format!("expected {expected}, as in the header"),
                None => "the header has no such column".to_string(),
            };
            return Err(refuse(source, span, format!("a row of `{name}`"), &label));
        }
        let cells = words.take(columns.len());
        let cells: Vec<_> = cells.map(|(cell, span)| (cell.to_string(), span)).collect();
        if cells.len() < columns.len() {
            let message = format!("{} cells of {name}", cells.len());
            let label = format!("expected {}, one for each device", columns.len());
            return Err(refuse(source, span, message, &label));
        }
        rows.push(Row {
            name: name.to_string(),
            cells,
        });
    }
    match rows.len() == columns.len() {
        true => Ok((columns, rows)),
        false => {
            let message = format!("{} rows for {} columns", rows.len(), columns.len());
            Err(refuse(
                source,
                0..plain.len(),
                message,
                "the matrix is not whole",
            ))
        }
    }
}

/// Known cells, the same both ways, and `X` where a device meets itself.
fn check(source: &Source, columns: &[String], rows: &[Row], gpus: usize) -> Result<(), Refused> {
    let cells = || {
        rows.iter().enumerate().flat_map(|(r, row)| {
            let cells = row.cells.iter().enumerate();
            cells.map(move |(c, (cell, span))| (r, c, &**cell, span))
        })
    };
    let refused = |r: usize, c: usize, cell: &str, span: &Range<usize>, label: &str| {
        let message = format!(
            "`{}` from {} to {}",
            escaped(cell),
            rows[r].name,
            columns[c]
        );
        Err(refuse(source, span.clone(), message, label))
    };
    for (r, c, cell, span) in cells() {
        let is_link = cell
            .strip_prefix("NV")
            .is_some_and(|count| count.parse::<u32>().is_ok());
        let is_known = match cell {
            "X" | "SYS" | "NODE" | "PHB" | "PXB" | "PIX" => true,
            _ => is_link && r < gpus && c < gpus,
        };
        if !is_known {
            let label = "expected X, SYS, NODE, PHB, PXB, PIX or, between GPUs, NV and a number";
            return refused(r, c, cell, span, label);
        }
        if (r == c) != (cell == "X") {
            let label = "expected X where a device meets itself, and there alone";
            return refused(r, c, cell, span, label);
        }
    }
    for (r, c, cell, span) in cells() {
        let back = &rows[c].cells[r].0;
        if back != cell {
            let label = format!("from {} to {} it is {back}", columns[c], columns[r]);
            return refused(r, c, cell, span, &label);
        }
    }
    Ok(())
}

fn notes(columns: &[String], rows: &[Row], gpus: usize) -> Vec<String> {
    let mut notes = vec![
        "the matrix tells the machine, not what NCCL's search finds on it: give `[nccl]` by a \
         graph file (NCCL_GRAPH_DUMP_FILE) or an INFO log, or plans assume ascending rings"
            .to_string(),
        "how many such hosts there are is not in the matrix".to_string(),
    ];
    let between = |row: &Row| row.cells[..gpus].to_vec();
    let mut kinds: Vec<String> = rows[..gpus]
        .iter()
        .flat_map(between)
        .map(|(cell, _)| cell)
        .filter(|cell| cell != "X")
        .collect();
    kinds.sort();
    kinds.dedup();
    notes.push(match &kinds[..] {
        [] => "one GPU".to_string(),
        kinds => format!("between GPUs: {}", kinds.join(", ")),
    });
    // From near to far.
    const NEAR: [&str; 5] = ["PIX", "PXB", "PHB", "NODE", "SYS"];
    for row in &rows[..gpus] {
        let nearest = NEAR.iter().find_map(|kind| {
            let nics = (gpus..columns.len()).filter(|nic| row.cells[*nic].0 == *kind);
            let nics: Vec<&str> = nics.map(|nic| &*columns[nic]).collect();
            (!nics.is_empty()).then(|| format!("{}: {} ({kind})", row.name, nics.join(" ")))
        });
        notes.extend(nearest);
    }
    notes
}
