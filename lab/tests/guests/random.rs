//! Any machine that the language accepts boots and is what it says: random small ones, 3 of them unless `TOPOLAB_RANDOM=N`.

use crate::common::{code_and_words, output};
use topolab::topology;
use topolab_model::SplitMix64;

/// A random declaration of at most 16 CPUs, on any architecture; not every one is accepted.
fn declaration(rng: &mut SplitMix64) -> String {
    let mut pick = |choices: &[u32]| choices[rng.below(choices.len() as u64) as usize];
    let arch = ["x86_64", "aarch64", "ppc64le"][pick(&[0, 0, 1, 2]) as usize];
    let power = arch == "ppc64le";
    let (packages, dies, modules) = (pick(&[1, 1, 2]), pick(&[1, 1, 2]), pick(&[1, 2, 3]));
    let cores = pick(&[1, 2, 3, 4]);
    let threads = if power { pick(&[1, 2, 4, 8]) } else { pick(&[1, 1, 2]) };
    let groups = if power && threads > 2 { pick(&[1, 2]) } else { 1 };
    let nodes = pick(&[1, 1, 2, 3, 4]);
    let far: Vec<u32> = (0..nodes * nodes).map(|_| pick(&[12, 15, 17, 21, 26, 32])).collect();
    // Symmetric, since kernels before 6.19 rightly complain of others.
    let cell = |a: u32, b: u32| if a == b { 10 } else { far[(a.min(b) * nodes + a.max(b)) as usize] };
    let row = |a: u32| format!("[{}]", (0..nodes).map(|b| cell(a, b).to_string()).collect::<Vec<_>>().join(", "));
    let rows: Vec<String> = (0..nodes).map(row).collect();
    let l1 = if groups > 1 { "group" } else { "core" };
    let l2 = [if groups > 1 { "group" } else { "core" }, "module"][pick(&[0, 1]) as usize];
    let l3 = ["die", "package"][pick(&[0, 1]) as usize];
    let llc = [l3, "node"][pick(&[0, 1]) as usize];
    let cpus = packages * dies * modules * cores * threads;
    // Nodes of equal size, or the same CPUs as a small and a large node.
    let named = nodes == 2 && pick(&[0, 1]) == 1 && cpus > 2;
    let first = threads * if modules > 1 { cores } else { 1 };
    let nodes_text = match named && first < cpus {
        true => format!(
            "distances = [{}]\n[[nodes.node]]\ncpus = \"0-{}\"\nguest_memory = \"256M\"\n\
             [[nodes.node]]\ncpus = \"{first}-{}\"\nguest_memory = \"512M\"\n",
            rows.join(", "),
            first - 1,
            cpus - 1
        ),
        false => format!("count = {nodes}\nguest_memory = \"512M\"\ndistances = [{}]\n", rows.join(", ")),
    };
    let capacity = match arch == "aarch64" && modules > 1 && pick(&[0, 1]) == 1 {
        true => {
            let units = packages * dies * modules;
            let values: Vec<String> =
                (0..units).map(|n| if n == 0 { "1024".into() } else { pick(&[446, 485, 1024]).to_string() }).collect();
            format!("[capacity]\nper = \"module\"\nvalues = [{}]\n", values.join(", "))
        }
        false => String::new(),
    };
    let cpu = match arch {
        "x86_64" => "qemu = \"SapphireRapids\"\nfamily = 6\nmodel = 143",
        "aarch64" => "qemu = \"neoverse-n1\"\nfamily = 8\nmodel = 0xd0c",
        _ => "qemu = \"power10\"\nname = \"POWER10\"",
    };
    format!(
        "schema = 1\ntitle = \"random\"\n[cpu.{arch}]\n{cpu}\n\
         [shape]\npackages = {packages}\ndies = {dies}\nmodules = {modules}\ncores = {cores}\nthreads = {threads}\nthread_groups = {groups}\n\
         [[cache]]\nlevel = 1\nkind = \"data\"\nsize = \"32K\"\nshared_by = \"{l1}\"\n\
         [[cache]]\nlevel = 1\nkind = \"instruction\"\nsize = \"32K\"\nshared_by = \"{l1}\"\n\
         [[cache]]\nlevel = 2\nkind = \"unified\"\nsize = \"4M\"\nshared_by = \"{l2}\"\n\
         [[cache]]\nlevel = 3\nkind = \"unified\"\nsize = \"16M\"\nshared_by = \"{l3}\"\n\
         [nodes]\n{nodes_text}[scheduler]\nllc = \"{llc}\"\n{capacity}"
    )
}

#[test]
fn accepted_machines_boot_and_are_what_they_say() {
    let wanted: usize =
        std::env::var("TOPOLAB_RANDOM").ok().map_or(3, |n| n.parse().expect("TOPOLAB_RANDOM is a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut booted = 0;
    let mut wrong = Vec::new();
    for seed in 0.. {
        if booted == wanted {
            break;
        }
        assert!(seed < 100 * wanted as u64, "the generator makes nothing that is accepted");
        let text = declaration(&mut SplitMix64::new(seed));
        if !topology::parse("random", &text).is_ok_and(|t| (2..=16).contains(&t.shape.cpus())) {
            continue;
        }
        booted += 1;
        let path = folder.path().join(format!("random-{seed}.toml"));
        std::fs::write(&path, &text).expect("a file");
        let ran = output(folder.path(), &["topology", "verify", &path.display().to_string(), "-q"]);
        println!("seed {seed}: exit {:?}", ran.status.code());
        let (code, said) = code_and_words(&ran);
        if code != Some(0) {
            let rows = String::from_utf8_lossy(&ran.stdout);
            let bad: Vec<&str> = rows.lines().filter(|line| line.starts_with('≠') || line.starts_with('!')).collect();
            wrong.push(format!("seed {seed}: {}\n{said}\n{text}", bad.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {booted} machines are not what they say:\n{}", wrong.len(), wrong.join("\n\n"));
}
