//! Reports in Markdown, and the sections of the committed page that they replace.

use crate::system;
use anyhow::Context;
use std::fs;
use std::path::PathBuf;

const PAGE: &str = "docs/performance/README.md";

/// A table; the cells after the first column are aligned to the right.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let alignment = format!("|---|{}\n", "--:|".repeat(head.len() - 1));
    line(&head) + &alignment + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// Writes a report: a record replaces its section of the committed page, anything else goes to the target folder.
pub(crate) fn write(section: &str, text: &str, is_record: bool) -> anyhow::Result<()> {
    let path = if is_record { system::root().join(PAGE) } else { folder()?.join(format!("{section}.md")) };
    let text = if is_record {
        let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        replace(&page, section, text).with_context(|| format!("{PAGE} has no section `{section}`"))?
    } else {
        text.to_owned()
    };
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    println!("written to {}", path.display());
    Ok(())
}

/// The folder of reports that are not committed.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let folder = system::target().join("measure");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// The folder of a report's charts, next to the report.
pub(crate) fn chart_folder(is_record: bool) -> anyhow::Result<PathBuf> {
    if is_record { Ok(system::root().join("docs/performance")) } else { folder() }
}

/// Replaces the text between `<!-- SECTION -->` and `<!-- end -->`.
fn replace(page: &str, section: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(&format!("<!-- {section} -->\n"))?;
    let (_, after) = rest.split_once("<!-- end -->\n")?;
    Some(format!("{before}<!-- {section} -->\n{text}<!-- end -->\n{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_of_a_page_is_replaced() {
        let page = "# A\n<!-- a -->\nold\n<!-- end -->\n<!-- b -->\nb\n<!-- end -->\n";
        let expected = "# A\n<!-- a -->\nnew\n<!-- end -->\n<!-- b -->\nb\n<!-- end -->\n";
        assert_eq!(replace(page, "a", "new\n").as_deref(), Some(expected));
        assert_eq!(replace(page, "c", "new\n"), None);
    }
}
