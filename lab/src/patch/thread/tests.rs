//! Intake cases, each a way in which patches arrive.

use super::*;
use crate::patch::mail::split;

/// A diff of kernel/f.c that makes line 2 `word`.
fn diff(word: &str) -> String {
    format!(
        "diff --git a/kernel/f.c b/kernel/f.c\n--- a/kernel/f.c\n+++ b/kernel/f.c\n@@ -1,3 +1,3 @@\n \tone\n-\ttwo\n+\t{word}\n \tthree\n"
    )
}

fn post(id: &str, answers: &str, subject: &str, body: &str) -> String {
    let answers = if answers.is_empty() { String::new() } else { format!("In-Reply-To: <{answers}>\n") };
    format!(
        "From mboxrd@z Thu Jan  1 00:00:00 1970\nFrom: A Person <a@x>\nDate: Mon, 30 Nov 2026 10:00:00 +0000\n\
         Subject: {subject}\nMessage-ID: <{id}>\n{answers}\n{body}\n"
    )
}

fn patch(id: &str, answers: &str, subject: &str, word: &str) -> String {
    post(
        id,
        answers,
        subject,
        &format!("why {word}\n\nSigned-off-by: A Person <a@x>\n---\n f.c | 2 +-\n\n{}-- \n2.47", diff(word)),
    )
}

fn assembled(mbox: &str, intake: Intake) -> Series {
    let parts = split(mbox.as_bytes());
    let mails = parts.iter().enumerate().map(|(n, part)| Mail::parse(&format!("mail {}", n + 1), part)).collect();
    assemble("t", mails, Held::Mailbox, intake)
}

fn titles(series: &Series) -> Vec<&str> {
    series.patches.iter().map(|patch| patch.title.as_str()).collect()
}

fn thread() -> String {
    [
        patch("2@x", "0@x", "[PATCH v1 2/2] f: two", "zwei"),
        post(
            "0@x",
            "",
            "[PATCH 0/2] f: words",
            "cover\n\nbase-commit: c21bb4193868a8de71fc4693fa741e195fdf5d86\nchange-id: 20260101-f-1",
        ),
        patch("1@x", "0@x", "[PATCH 1/2] f: one", "eins"),
        post(
            "r1@x",
            "1@x",
            "Re: [PATCH 1/2] f: one",
            "> +\teins\n\nfine\n\nReviewed-by: R Viewer <r@x>\n> Acked-by: Nobody <n@x>",
        ),
        post("r0@x", "0@x", "Re: [PATCH 0/2] f: words", "Tested-by: T Ester <t@x>"),
    ]
    .concat()
}

#[test]
fn a_thread_in_any_order_is_a_series_with_what_replies_gave() {
    let series = assembled(&thread(), Intake::default());
    assert_eq!(series.problems, []);
    assert_eq!(titles(&series), ["f: one", "f: two"]);
    assert_eq!((series.title.as_str(), series.cover, series.total), ("f: words", true, 2));
    assert_eq!(series.base_commit.as_deref(), Some("c21bb4193868a8de71fc4693fa741e195fdf5d86"));
    assert_eq!(series.change_id.as_deref(), Some("20260101-f-1"));
    assert_eq!(series.patches[0].trailers, ["Reviewed-by: R Viewer <r@x>", "Tested-by: T Ester <t@x>"]);
    assert_eq!(series.patches[1].trailers, ["Tested-by: T Ester <t@x>"]);
    let mail = String::from_utf8(series.patches[0].mail()).expect("UTF-8");
    assert!(
        mail.contains("Signed-off-by: A Person <a@x>\nReviewed-by: R Viewer <r@x>\nTested-by: T Ester <t@x>\n\n---\n"),
        "{mail}"
    );
    assert!(
        mail.contains("Subject: [PATCH] f: one\n") && mail.ends_with(&format!("{}-- \ntopolab\n", diff("eins"))),
        "{mail}"
    );
}

#[test]
fn the_newest_version_counts_unless_told_otherwise() {
    let both = [
        thread(),
        patch("v2-1@x", "0@x", "[PATCH v2 1/2] f: one", "uno"),
        patch("v2-2@x", "0@x", "[PATCH v2 2/2] f: two", "due"),
        post("late@x", "1@x", "Re: [PATCH 1/2] f: one", "Acked-by: L Ate <l@x>"),
    ]
    .concat();
    let newest = assembled(&both, Intake::default());
    assert_eq!((newest.version, newest.versions.as_slice()), (2, &[1, 2][..]));
    assert!(newest.content().contains("uno") && newest.patches[0].trailers.is_empty());
    let first = assembled(&both, Intake { version: Some(1), ..Intake::default() });
    assert!(first.problems.is_empty() && first.content().contains("eins"));
    let none = assembled(&both, Intake { version: Some(7), ..Intake::default() });
    assert_eq!(none.problems[0].help.as_deref(), Some("there is v1, v2"));
}

#[test]
fn a_missing_part_is_named() {
    let series = assembled(&patch("2@x", "0@x", "[PATCH v3 2/3] f: two", "zwei"), Intake::default());
    assert_eq!(series.missing, [1, 3]);
    assert!(series.problems[0].message.contains("1/3, 3/3 missing"), "{:?}", series.problems);
    assert!(series.problems[0].help.as_deref().is_some_and(|help| help.contains("b4 am 2@x")));
}

#[test]
fn a_cover_letter_alone_is_called_that() {
    let series = assembled(&post("0@x", "", "[PATCH 0/2] f: words", "cover"), Intake::default());
    assert!(
        series.problems[0].message.contains("cover letter of a series of 2, without its patches"),
        "{:?}",
        series.problems
    );
}

#[test]
fn a_patch_sent_again_replaces_itself_and_two_of_one_number_are_refused() {
    let again = [thread(), patch("1b@x", "0@x", "[PATCH RESEND 1/2] f: one", "ein")].concat();
    let series = assembled(&again, Intake::default());
    assert!(series.problems.is_empty() && series.content().contains("\tein\n"));
    let other = [thread(), patch("1c@x", "0@x", "[PATCH 1/2] g: other", "x")].concat();
    assert!(assembled(&other, Intake::default()).problems[0].message.contains("two different patches 1/2"));
    let mixed = [thread(), patch("x@x", "", "[PATCH 1/5] h: of another series", "x")].concat();
    assert!(assembled(&mixed, Intake::default()).problems[0].message.contains("more than one series"));
}

#[test]
fn what_is_no_patch_of_the_thread_is_left_out() {
    let notice = post("n@x", "", "[tip: sched/core] f: one", &diff("tip"));
    let robot = post("b@x", "1@x", "Re: [PATCH 1/2] f: one", &format!("Reviewed-by: B Ot <b@x>\n{}", diff("robot")));
    let noisy = [thread(), notice, robot, thread()].concat();
    let series = assembled(&noisy, Intake::default());
    assert_eq!((series.problems.len(), titles(&series)), (0, vec!["f: one", "f: two"]));
    assert!(series.content().contains("eins") && !series.patches[0].trailers.iter().any(|t| t.contains("b@x")));
    let several = [post("1@x", "", "[PATCH] f: a", &diff("a")), post("2@x", "", "[PATCH] f: b", &diff("b"))].concat();
    assert!(assembled(&several, Intake::default()).problems[0].message.contains("several patches"));
    let reply = post("1@x", "", "Re: something", &format!("Like this?\n\n{}", diff("a")));
    assert!(assembled(&reply, Intake::default()).problems[0].message.contains("diff of its own"));
}

#[test]
fn a_list_says_the_order_and_a_folder_leaves_nothing_out() {
    let mail =
        |subject: &str, word: &str| Mail::parse(word, &split(post(word, "", subject, &diff(word)).as_bytes())[0]);
    let mixed = vec![mail("[PATCH v3 2/7] f: b", "b"), mail("[PATCH 1/3] f: a", "a")];
    let listed = assemble("t", mixed.clone(), Held::List, Intake::default());
    assert_eq!((listed.problems.len(), titles(&listed)), (0, vec!["f: b", "f: a"]));
    assert!(assemble("t", mixed, Held::Files, Intake::default()).problems[0].message.contains("several versions"));
    let extra = vec![mail("[PATCH 1/1] f: a", "a"), mail("[PATCH] f: fix", "fix")];
    assert!(assemble("t", extra, Held::Files, Intake::default()).problems[0].message.contains("not one of the 1"));
}

#[test]
fn a_part_is_taken_when_asked_and_a_cut_diff_is_seen() {
    let part = patch("2@x", "0@x", "[PATCH v3 2/3] f: two", "zwei");
    let series = assembled(&part, Intake { partial: true, ..Intake::default() });
    assert_eq!((series.problems.len(), titles(&series)), (0, vec!["f: two"]));
    let stat = " f.c | 2 +-\n 2 files changed, 2 insertions(+), 2 deletions(-)\n";
    let cut = patch("1@x", "", "[PATCH] f: one", "eins").replace(" f.c | 2 +-\n", stat);
    assert!(assembled(&cut, Intake::default()).problems[0].message.contains("some of the diff is missing"));
}

#[test]
fn paths_without_prefixes_get_them() {
    let bare = patch("1@x", "", "[PATCH] f: one", "eins").replace("a/kernel", "kernel").replace("b/kernel", "kernel");
    let series = assembled(&bare, Intake::default());
    assert_eq!((series.problems.len(), series.content()), (0, diff("eins")));
    assert!(series.notes[0].contains("no a/ and b/"), "{:?}", series.notes);
}

/// A review that quotes the patch and answers between its lines.
fn review() -> String {
    let original = format!("f: words\n\nSigned-off-by: A Person <a@x>\n---\n f.c | 2 +-\n\n{}-- \n", diff("eins"));
    let quoted: Vec<String> = original.lines().map(|line| format!("> {line}")).collect();
    let body = quoted.join("\n").replace("> +\teins", "> +\teins\n\nWhy?\n");
    post("r@x", "1@x", "Re: [PATCH v4] f: one", &format!("On Monday A Person wrote:\n{body}"))
}

#[test]
fn a_quoted_patch_comes_out_of_the_quotation_when_asked() {
    let refused = assembled(&review(), Intake::default());
    assert!(refused.problems[0].message.contains("only quoted in a reply"), "{:?}", refused.problems);
    let series = assembled(&review(), Intake { unquote: true, ..Intake::default() });
    assert_eq!(series.problems, []);
    assert_eq!((series.version, titles(&series)), (4, vec!["f: one"]));
    assert_eq!(series.content(), diff("eins"));
    assert_eq!(series.patches[0].from.as_deref(), Some("A Person <a@x>"));
}

#[test]
fn a_quotation_that_leaves_lines_out_is_mangled() {
    let cut = review().replace("> -\ttwo\n", "> [...]\n");
    let series = assembled(&cut, Intake { unquote: true, ..Intake::default() });
    assert!(series.problems[0].message.contains("mangled"), "{:?}", series.problems);
}

#[test]
fn quoted_printable_base64_and_latin_1_are_decoded() {
    let head = "From: A Person <a@x>\nSubject: [PATCH] f: one\nMIME-Version: 1.0\n";
    let quoted = diff("größe").replace('\t', "=09").replace('ö', "=F6").replace('ß', "=DF");
    let mail = format!(
        "{head}Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\n---\n{quoted}"
    );
    let series = assembled(&mail, Intake::default());
    assert_eq!(series.content(), diff("größe"));
    assert_eq!(series.notes, ["quoted-printable is decoded", "characters of iso-8859-1 are UTF-8 now"]);
    let coded = "LS0tCmRpZmYgLS1naXQgYS9mLmMgYi9mLmMKLS0tIGEvZi5jCisrKyBiL2YuYwpAQCAtMSArMSBA\nQAotYQorYgo=\n";
    let mail = format!("{head}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n{coded}");
    assert_eq!(
        assembled(&mail, Intake::default()).content(),
        "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-a\n+b\n"
    );
}

#[test]
fn bytes_that_are_no_characters_reach_git_as_they_came() {
    let mut mail = b"From: A <a@x>\nSubject: [PATCH] f: one\n\nwords\n---\n".to_vec();
    let wanted = [diff("caf").as_bytes(), b""].concat();
    let at = wanted.windows(4).position(|w| w == b"caf\n").expect("the word") + 3;
    let wanted = [&wanted[..at], b"\xe9", &wanted[at..]].concat();
    mail.extend_from_slice(&wanted);
    let series = assemble("t", vec![Mail::parse("m", &mail)], Held::Mailbox, Intake::default());
    let sent = series.patches[0].mail();
    assert!(sent.windows(wanted.len()).any(|w| w == wanted), "{}", String::from_utf8_lossy(&sent));
}

#[test]
fn damage_is_named_repaired_when_asked_and_never_guessed() {
    let whole = patch("1@x", "", "[PATCH] f: one", "eins");
    let stripped = whole.replace("\n \tone", "\n\tone").replace("\n \tthree", "\n\tthree");
    let named = assembled(&stripped, Intake::default());
    assert!(
        named.problems[0].detail.as_deref().is_some_and(|d| d.contains("lost their leading blank")),
        "{:?}",
        named.problems
    );
    assert!(named.problems[0].help.as_deref().is_some_and(|help| help.starts_with("--repair")));
    let repair = Intake { repair: true, ..Intake::default() };
    let mended = assembled(&stripped, repair);
    assert_eq!((mended.problems.len(), mended.content()), (0, diff("eins")));
    assert_eq!(mended.notes, ["repaired: 2 context line(s) have their leading blank again"]);
    let lost = assembled(&stripped.replace("\tthree\n", ""), repair);
    assert!(
        lost.problems[0].help.as_deref().is_some_and(|help| help.contains("without guessing")),
        "{:?}",
        lost.problems
    );
}

#[test]
fn bare_diffs_keep_the_order_of_their_files() {
    let mails = ["a", "b"].map(|word| Mail::parse(&format!("{word}.patch"), diff(word).as_bytes()));
    let series = assemble("t", mails.to_vec(), Held::Files, Intake::default());
    assert_eq!((titles(&series), series.total), (vec!["a.patch", "b.patch"], 2));
}

#[test]
fn hostile_paths_are_refused() {
    let hostile = patch("1@x", "", "[PATCH] f: one", "eins").replace("+++ b/kernel/f.c", "+++ b/../../etc/passwd");
    let series = assembled(&hostile, Intake::default());
    assert!(series.problems[0].message.contains("outside the kernel tree"), "{:?}", series.problems);
}

#[test]
fn words_without_a_patch_are_said_to_be_that() {
    let series = assembled(&post("1@x", "", "hello", "only words"), Intake::default());
    assert_eq!(series.problems[0].message, "there is no patch in it");
}

proptest::proptest! {
    /// Whatever a mailer does to a thread, something is said and nothing panics.
    #[test]
    fn no_mutation_of_a_thread_makes_a_panic(at in 0usize..4000, cut in 0usize..40, put in "[ -~\n\t>+@=\u{e9}\u{a0}-]{0,12}") {
        let text = [thread(), review()].concat();
        let chars: Vec<char> = text.chars().collect();
        let at = at.min(chars.len());
        let end = (at + cut).min(chars.len());
        let mutant: String = chars[..at].iter().copied().chain(put.chars()).chain(chars[end..].iter().copied()).collect();
        for (unquote, repair) in [(false, false), (true, true)] {
            let series = assembled(&mutant, Intake { unquote, repair, ..Intake::default() });
            series.patches.iter().for_each(|patch| { patch.mail(); });
            proptest::prop_assert!(!series.patches.is_empty() || !series.problems.is_empty());
        }
    }
}
