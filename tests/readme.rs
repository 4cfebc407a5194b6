//! The README shows code that is compiled and run elsewhere in this repository, word for word.

use std::fs;
use std::path::Path;

#[test]
fn what_the_readme_shows_is_the_code_that_runs() {
    for (file, region) in
        [("tests/consumer.rs", "unit test"), ("inbox-testkit/tests/custom_store.rs", "stand")]
    {
        let code = region_of(&read(file), region);
        assert!(
            read("README.md").contains(&code),
            "the README's copy of {region:?} in {file} is out of date"
        );
    }
}

#[test]
fn a_stand_is_written_in_forty_lines() {
    let stand = region_of(&read("inbox-testkit/tests/custom_store.rs"), "stand");
    let lines = stand.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 40, "{lines} lines");
}

/// The lines between `// region: NAME` and `// endregion: NAME`.
fn region_of(text: &str, name: &str) -> String {
    let after = text.split_once(&format!("// region: {name}\n")).expect("the region's start").1;
    after.split_once(&format!("// endregion: {name}\n")).expect("the region's end").0.to_owned()
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
