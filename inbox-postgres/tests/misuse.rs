//! Misuse does not compile, and the compiler says what to do instead.
//!
//! One folder of files: each `.rs` but `fits.rs` is refused with the text beside it, by the compiler
//! that the workspace names as its oldest. `TRYBUILD=overwrite` writes the texts anew.

/// What has to compile: not through trybuild, which would build every dependency once more for it.
#[path = "misuse/fits.rs"]
mod fits;

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/misuse/handler_*.rs");
    cases.compile_fail("tests/misuse/register_*.rs");
    cases.compile_fail("tests/misuse/use_*.rs");
}
