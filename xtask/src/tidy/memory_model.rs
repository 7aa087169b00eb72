//! `docs/memory-model.md` names every function that orders memory, and only functions that exist.
//!
//! The page refers to a function as `ring/sender.rs: post`, with the path below `shmring/src`.

use super::functions::function_name;
use super::orderings::sites;
use super::{Problem, Source};
use std::collections::BTreeSet;

const PAGE: &str = "docs/memory-model.md";
const CODE: &str = "shmring/src/";

/// Compares the page with the code, both ways.
pub(super) fn check(sources: &[Source]) -> Vec<Problem> {
    let Some(page) = sources.iter().find(|source| source.path == PAGE) else {
        return vec![format!("{PAGE} is missing")];
    };
    let mut problems = Vec::new();
    let named: BTreeSet<(&str, &str)> =
        references(&page.text).map(|(_, file, function)| (file, function)).collect();
    for source in sources {
        let Some(file) = source.path.strip_prefix(CODE) else { continue };
        let used: BTreeSet<&str> = sites(source).into_iter().map(|site| site.function).collect();
        for function in used.into_iter().filter(|function| !named.contains(&(file, *function))) {
            problems.push(format!("{PAGE}: `{file}: {function}` orders memory and is not listed"));
        }
    }
    for (line, file, function) in references(&page.text) {
        let exists = sources.iter().any(|source| {
            source.path.strip_prefix(CODE) == Some(file)
                && source.text.lines().any(|line| function_name(line) == Some(function))
        });
        if !exists {
            problems.push(format!("{PAGE}:{line}: there is no `{file}: {function}` in {CODE}"));
        }
    }
    problems
}

/// Line, file and function of every reference in the page.
fn references(page: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    page.lines().enumerate().flat_map(|(index, line)| {
        // What stands between back ticks is every second part.
        let quoted = line.split('`').skip(1).step_by(2);
        quoted.filter_map(move |text| {
            let (file, function) = text.split_once(".rs: ")?;
            Some((index + 1, &text[..file.len() + 3], function))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const CODE_TEXT: &str = "pub fn post() {\n    a.store(1, Ordering::Release);\n}\nfn other() {}\n";

    fn problems(page: &str) -> Vec<Problem> {
        check(&[source("docs/memory-model.md", page), source("shmring/src/ring/a.rs", CODE_TEXT)])
    }

    /// A function that orders memory must be listed, and what is listed must exist.
    #[test]
    fn page_and_code_are_compared() {
        assert!(problems("| `ring/a.rs: post` | x |").is_empty());
        assert!(problems("`ring/a.rs: post` and `ring/a.rs: other`").is_empty());
        assert!(problems("| post |")[0].contains("`ring/a.rs: post` orders memory"));
        assert!(
            problems("`ring/a.rs: post` `ring/a.rs: gone`")[0].contains(":1: there is no `ring/a.rs: gone`")
        );
        assert!(problems("`ring/a.rs: post` `ring/b.rs: post`")[0].contains("ring/b.rs"));
        assert_eq!(check(&[]).len(), 1);
    }
}
