//! The manual as a web site with a search, made by mdBook of the pages in `docs/` and of those that they lead to. The
//! order of its pages is that of `docs/README.md`.

mod pages;
mod site_links;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::program::{Log, Outcome, Program, is_installed, target_folder};
use pages::Pages;

const INSTALL: &str = "cargo install mdbook --locked --no-default-features --features search";
const BOOK: &str = "[book]\ntitle = \"Sanderling\"\nlanguage = \"en\"\n\n[output.html]\nno-section-label = true\n\
    smart-punctuation = false\n\n[output.html.print]\nenable = false\n";
/// Pages outside `docs/`.
const PROJECT_PAGES: [&str; 6] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "CHANGELOG.md", "packaging/README.md"];

/// Writes the site into the folder `out`, and checks its links.
pub(crate) fn run(out: &str, log: &mut Log) -> Outcome {
    if !is_installed("mdbook") {
        return Outcome::Failed(format!("mdbook is not installed; run {INSTALL}"));
    }
    let book = target_folder().join("manual");
    let made = write_book(&book).and_then(|()| Ok((std::path::absolute(&book)?, std::path::absolute(out)?)));
    let (book, out) = match made {
        Ok(paths) => paths,
        Err(error) => return Outcome::Failed(format!("{}: {error}", book.display())),
    };
    let arguments = ["build", "--dest-dir"].map(str::to_owned).into_iter();
    let paths = [&out, &book].map(|path| path.display().to_string());
    let built = Program::new("mdbook").args_of(&arguments.chain(paths).collect::<Vec<_>>()).run(log);
    built.and_then(|| match site_links::broken(&out) {
        Err(error) => Outcome::Failed(format!("{}: {error}", out.display())),
        Ok(broken) if broken.is_empty() => {
            log.line(&format!("To read it: cargo run --release -- demo --site {}", out.display()));
            Outcome::Passed
        }
        Ok(broken) => {
            broken.iter().for_each(|link| log.line(link));
            Outcome::Failed(format!("{} links of the site lead nowhere", broken.len()))
        }
    })
}

/// Writes the input of mdBook.
fn write_book(book: &Path) -> io::Result<()> {
    match fs::remove_dir_all(book) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut files = Vec::new();
    list(Path::new("docs"), &mut files)?;
    files.extend(PROJECT_PAGES.map(PathBuf::from));
    let (texts, others): (Vec<PathBuf>, Vec<PathBuf>) =
        files.into_iter().partition(|file| file.extension().is_some_and(|extension| extension == "md"));
    let read = |path: &PathBuf| Ok((path.to_string_lossy().into_owned(), fs::read_to_string(path)?));
    let pages = Pages::new(texts.iter().map(read).collect::<io::Result<_>>()?);
    let source = book.join("src");
    for (path, text) in pages.in_book() {
        write(&source.join(path), text.as_bytes())?;
    }
    for other in others {
        write(&source.join(pages::book_path(&other.to_string_lossy())), &fs::read(&other)?)?;
    }
    write(&source.join("SUMMARY.md"), pages.summary().as_bytes())?;
    write(&book.join("book.toml"), BOOK.as_bytes())
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
    fs::write(path, content)
}

/// Adds the files below `folder`, in the order of their names.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
