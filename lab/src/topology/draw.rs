//! A machine as nested boxes, in lstopo's manner, as SVG. Pure: a topology in, text out.

use super::model::{Level, Topology, size_text};
use std::fmt::Write;
use topolab_wire::CpuSet;

const PAD: u32 = 6;
const TITLE: u32 = 16;
const CPU_WIDTH: u32 = 30;
const CPU_HEIGHT: u32 = 20;
/// CPUs beyond this are drawn without a number each: the boxes would not fit a page.
const MOST_DRAWN: u32 = 600;

/// A laid-out box.
struct Block {
    label: String,
    fill: &'static str,
    width: u32,
    height: u32,
    inside: Vec<(u32, u32, Block)>,
}

/// Draws a machine.
pub fn draw(t: &Topology) -> String {
    // From the outside in; a level that coincides with the one around it is no box of its own.
    let levels = [
        (Level::Package, "Package", "#f4f4f4"),
        (Level::Die, "Die", "#e8e8f8"),
        (Level::Node, "Node", "#e4f2e4"),
        (Level::Module, "Module", "#fdf3dc"),
        (Level::Core, "Core", "#ffffff"),
    ];
    let whole = CpuSet::range(0, t.shape.cpus());
    let machine = block(t, &whole, &levels, &t.name, "#ffffff");
    let (width, height) = (machine.width + 2 * PAD, machine.height + 2 * PAD);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"10\">\n"
    );
    paint(&mut out, &machine, PAD, PAD);
    out.push_str("</svg>\n");
    out
}

fn block(t: &Topology, set: &CpuSet, levels: &[(Level, &str, &'static str)], label: &str, fill: &'static str) -> Block {
    let caches: Vec<String> = cache_labels(t, set);
    let label = [vec![label.to_string()], caches].concat().join("  ");
    let mut rest = levels;
    while let [(level, name, colour), inner @ ..] = rest {
        let units: Vec<CpuSet> = t.units(*level).into_iter().filter(|unit| unit.is_subset(set)).collect();
        if units.len() > 1 {
            let first = t.units(*level).iter().position(|unit| unit == &units[0]).unwrap_or(0);
            let inside =
                (first..).zip(&units).map(|(n, unit)| block(t, unit, inner, &format!("{name} {n}"), colour)).collect();
            return arrange(label, fill, inside);
        }
        rest = inner;
    }
    let cpu = |cpu: u32| Block {
        label: cpu.to_string(),
        fill: "#d8e6f4",
        width: CPU_WIDTH,
        height: CPU_HEIGHT,
        inside: Vec::new(),
    };
    let drawn: Vec<Block> = match t.shape.cpus() <= MOST_DRAWN {
        true => set.iter().map(cpu).collect(),
        false => vec![Block { label: set.to_string(), width: 3 * CPU_WIDTH, ..cpu(0) }],
    };
    arrange(label, fill, drawn)
}

/// The caches whose sharers are exactly this set.
fn cache_labels(t: &Topology, set: &CpuSet) -> Vec<String> {
    let own = t.caches.iter().filter(|cache| cache.level > 1 && t.units(cache.shared_by).contains(set));
    let mut labels: Vec<String> = own.map(|cache| format!("L{} {}", cache.level, size_text(cache.size_kib))).collect();
    if t.llcs().contains(set) {
        labels.push("LLC".into());
    }
    labels
}

/// Puts boxes into rows, about as wide as high.
fn arrange(label: String, fill: &'static str, inside: Vec<Block>) -> Block {
    let columns = (inside.len() as f64).sqrt().ceil().max(1.0) as usize;
    let (mut y, mut width) = (TITLE + PAD, 6 * label.chars().count() as u32);
    let mut placed = Vec::new();
    let mut row: Vec<Block> = Vec::new();
    let mut flush = |row: &mut Vec<Block>, y: &mut u32| {
        let height = row.iter().map(|b| b.height).max().unwrap_or(0);
        let mut x = PAD;
        for b in row.drain(..) {
            let w = b.width;
            placed.push((x, *y, b));
            x += w + PAD;
        }
        width = width.max(x - PAD);
        *y += height + PAD;
    };
    for b in inside {
        row.push(b);
        if row.len() == columns {
            flush(&mut row, &mut y);
        }
    }
    if !row.is_empty() {
        flush(&mut row, &mut y);
    }
    Block { label, fill, width: width + PAD, height: y, inside: placed }
}

fn paint(out: &mut String, b: &Block, x: u32, y: u32) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#555\"/><text x=\"{}\" y=\"{}\">{}</text>",
        b.width,
        b.height,
        b.fill,
        x + 4,
        y + 13,
        escaped(&b.label)
    );
    for (dx, dy, inner) in &b.inside {
        paint(out, inner, x + dx, y + dy);
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::{parse, scale};
    use super::*;

    #[test]
    fn every_cpu_node_and_module_is_drawn_once() {
        let full = parse("cwf-snc3", include_str!("../../../topologies/cwf-snc3.toml")).expect("built in");
        let svg = draw(&scale(&full, 12).expect("1/12"));
        let count = |text: &str| svg.matches(text).count();
        assert_eq!((count(">Node "), count(">Module "), count("LLC")), (3, 6, 3));
        assert_eq!(count("#d8e6f4"), 24);
        assert!(svg.contains(">23<") && svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }
}
