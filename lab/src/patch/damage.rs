//! What mailers and archives do to a diff, found and, where nothing has to be guessed, undone.
//!
//! A repair is safe because of what comes after it: git applies a hunk only where its context is in the tree, so a context line
//! that was put right wrongly makes a patch that does not apply, or one whose fuzz is said. Added and removed lines have no such
//! witness; therefore they are never changed.

use super::diff::{Diff, Hunk};

/// A blank that does not break, which some mailers make of a plain one. Only in front of a context line is it damage: elsewhere the
/// text may well have one.
const NO_BREAK: char = '\u{a0}';

/// What is wrong with a diff, each with the line of the text (from 1) where it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Damage {
    /// Lines of a hunk that begin with none of blank, plus, minus: context that lost its leading blank.
    LostBlanks { first: usize, lines: usize },
    /// Long lines that were broken in two.
    Wrapped { first: usize, lines: usize },
    /// A hunk with fewer or more lines than it announces.
    Count { hunk: usize, line: usize, announced: (usize, usize), found: (usize, usize) },
    /// Code without a single tab or deep blank.
    Flat,
    /// Headers that promise content which is not there.
    Hollow { first: usize },
    /// Context lines whose leading blank does not break.
    NoBreak { first: usize, lines: usize },
}

impl Damage {
    /// In words, with lines counted from the beginning of a text that has some in front.
    pub(super) fn shown(&self, before: usize) -> String {
        match self {
            Self::LostBlanks { first, lines } => {
                format!("line {}: {lines} context line(s) lost their leading blank", first + before)
            }
            Self::Wrapped { first, lines } => {
                format!("line {}: {lines} line(s) are the rest of a line that was broken in two", first + before)
            }
            Self::Count { hunk, line, announced, found } => format!(
                "line {}: hunk {hunk} announces {} old and {} new lines and has {} and {}",
                line + before,
                announced.0,
                announced.1,
                found.0,
                found.1
            ),
            Self::Flat => "no line of the code has a tab: its indentation is lost".into(),
            Self::NoBreak { first, lines } => {
                format!(
                    "line {}: {lines} context line(s) begin with a blank that does not break (U+00A0)",
                    first + before
                )
            }
            Self::Hollow { first } => {
                format!("line {}: a file is named, and none of its content follows", first + before)
            }
        }
    }
}

/// What is wrong with a text's diff; nothing, for a sound one.
pub(super) fn examine(text: &str) -> Vec<Damage> {
    let diff = Diff::parse(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    // A line that was broken in two pushes one of the last ones out of its hunk.
    let wrapped = |hunk: &Hunk| !hunk.odd.is_empty() && hunk.left_over == hunk.odd.len();
    let (broken, rest): (Vec<&Hunk>, Vec<&Hunk>) = diff.hunks.iter().partition(|hunk| wrapped(hunk));
    let odd = |hunks: &[&Hunk]| -> Vec<usize> { hunks.iter().flat_map(|hunk| hunk.odd.iter().copied()).collect() };
    let (stiff, lost): (Vec<usize>, Vec<usize>) =
        odd(&rest).into_iter().partition(|at| lines[*at].starts_with(NO_BREAK));
    if let [first, more @ ..] = stiff.as_slice() {
        found.push(Damage::NoBreak { first: first + 1, lines: more.len() + 1 });
    }
    if let [first, more @ ..] = odd(&broken).as_slice() {
        found.push(Damage::Wrapped { first: first + 1, lines: more.len() + 1 });
    }
    if let [first, more @ ..] = lost.as_slice() {
        found.push(Damage::LostBlanks { first: first + 1, lines: more.len() + 1 });
    }
    for (n, hunk) in diff.hunks.iter().enumerate() {
        if !hunk.is_complete() {
            let announced = (hunk.old, hunk.new);
            found.push(Damage::Count { hunk: n + 1, line: hunk.at + 1, announced, found: hunk.found });
        }
    }
    found.extend(diff.hollow.first().map(|first| Damage::Hollow { first: first + 1 }));
    if !found.is_empty() && is_flat(&diff, &lines) {
        found.push(Damage::Flat);
    }
    found
}

/// Whether C code, which kernels indent with tabs (Documentation/process/coding-style.rst), has none, though some of it stands in
/// a block.
fn is_flat(diff: &Diff, lines: &[&str]) -> bool {
    let is_code = diff.files.iter().any(|file| [".c", ".h", ".S", ".rs"].iter().any(|end| file.ends_with(end)));
    let body: Vec<&str> = diff.hunks.iter().flat_map(|hunk| lines[hunk.body.clone()].iter().copied()).collect();
    let in_a_block = body.iter().any(|line| line.contains("return") || line.trim_end().ends_with("{"));
    is_code && in_a_block && !body.iter().any(|line| line.contains('\t'))
}

/// A repaired text with what was changed, or what stands in the way.
pub(super) fn repair(text: &str) -> Result<(String, Vec<String>), Vec<Damage>> {
    let mut changed = Vec::new();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let odd: Vec<usize> = Diff::parse(text).hunks.into_iter().flat_map(|hunk| hunk.odd).collect();
    let stiff: Vec<usize> = odd.into_iter().filter(|at| lines[*at].starts_with(NO_BREAK)).collect();
    for at in &stiff {
        lines[*at] = lines[*at].replacen(NO_BREAK, " ", 1);
    }
    if !stiff.is_empty() {
        changed.push(format!("{} context line(s): the leading blank that does not break is a plain one", stiff.len()));
    }
    let diff = Diff::parse(&joined(&lines));
    let mut blanks = 0;
    for hunk in diff.hunks.iter().filter(|hunk| !hunk.odd.is_empty() && hunk.is_complete() && hunk.left_over == 0) {
        // A mailer that strips one blank strips it from every line, so that a context line which still begins with one had two:
        // the continuation lines of a comment.
        let kept = lines[hunk.body.clone()].iter().filter(|line| line.starts_with(' '));
        let all = kept.clone().all(|line| line.starts_with(" *") || line.trim().is_empty());
        for at in hunk.body.clone() {
            let line = &lines[at];
            let context = !line.is_empty() && !line.starts_with(['+', '-', '\\']);
            if context && (all || !line.starts_with(' ')) {
                lines[at].insert(0, ' ');
                blanks += 1;
            }
        }
    }
    if blanks > 0 {
        changed.push(format!("{blanks} context line(s) have their leading blank again"));
    }
    let repaired = joined(&lines);
    let left = examine(&repaired);
    // Indentation that was lost shows only beside other damage, and a repair must not hide it.
    let flat = examine(text).contains(&Damage::Flat);
    match (left.is_empty(), flat) {
        (true, false) => Ok((repaired, changed)),
        (true, true) => Err(vec![Damage::Flat]),
        (false, _) => Err(left),
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -1,6 +1,7 @@\n \tone;\n }\n \n+\treturn;\n /*\n  * words\n  */\n";

    /// As an archive that strips the first blank of each line shows it.
    fn stripped() -> String {
        DIFF.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
    }

    #[test]
    fn a_sound_diff_has_no_damage() {
        assert_eq!(examine(DIFF), []);
        assert_eq!(repair(DIFF), Ok((DIFF.to_string(), vec![])));
    }

    #[test]
    fn lost_blanks_are_named_and_put_back() {
        assert!(
            matches!(examine(&stripped())[..], [Damage::LostBlanks { first: 5, lines: 3 }]),
            "{:?}",
            examine(&stripped())
        );
        let (text, changed) = repair(&stripped()).expect("repairable");
        // An empty context line needs no blank.
        assert_eq!(text, DIFF.replace("\n \n", "\n\n"));
        assert_eq!(changed, ["5 context line(s) have their leading blank again"]);
    }

    #[test]
    fn lost_lines_and_lost_indentation_are_refused() {
        let short = stripped().replace("}\n\n", "}\n");
        let left = repair(&short).expect_err("a line is lost");
        assert!(left.iter().any(|d| matches!(d, Damage::Count { hunk: 1, line: 4, .. })), "{left:?}");
        let flat = stripped().replace('\t', " ").replace("one;", "one(void) {");
        assert_eq!(repair(&flat), Err(vec![Damage::Flat]));
    }

    #[test]
    fn broken_lines_and_stiff_blanks_are_named() {
        let long = DIFF.replace("+\treturn;", "+\treturn a\nand b;");
        assert!(matches!(examine(&long)[..], [Damage::Wrapped { first: 9, lines: 1 }]), "{:?}", examine(&long));
        assert!(repair(&long).is_err());
        let stiff = DIFF.replace("\n  * words", "\n\u{a0} * words");
        assert!(matches!(examine(&stiff)[..], [Damage::NoBreak { first: 10, lines: 1 }]), "{:?}", examine(&stiff));
        assert_eq!(examine(&DIFF.replace("words", "wo\u{a0}rds")), []);
        assert_eq!(repair(&stiff).expect("repairable").0, DIFF);
    }
}
