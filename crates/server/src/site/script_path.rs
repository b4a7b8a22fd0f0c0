//! Paths that name a script of a FastCGI application: those with a segment that ends with `.php`.
//!
//! A site that runs scripts sends none as a file, whichever way leads to it.

const EXTENSION: &[u8] = b".php";

/// Whether a path names a script.
pub(crate) fn names_script(path: &[u8]) -> bool {
    divide(path).is_some()
}

/// Divides a path after its first segment that names a script: what follows is PATH_INFO. `None` if there is none.
pub(crate) fn divide(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut end = 0;
    for segment in path.split(|&byte| byte == b'/') {
        end += segment.len();
        if segment.ends_with(EXTENSION) && segment.len() > EXTENSION.len() {
            return Some(path.split_at(end));
        }
        end += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_divided_after_the_first_script() {
        let check = |path: &str, expected: Option<(&str, &str)>| {
            let found = divide(path.as_bytes()).map(|(name, path_info)| (name.to_vec(), path_info.to_vec()));
            let expected = expected.map(|(name, path_info)| (name.as_bytes().to_vec(), path_info.as_bytes().to_vec()));
            assert_eq!(found, expected, "{path}");
        };
        check("index.php", Some(("index.php", "")));
        check("a/index.php/b/c", Some(("a/index.php", "/b/c")));
        check("x.jpg/y.php", Some(("x.jpg/y.php", "")));
        check("a.php/b.php", Some(("a.php", "/b.php")));
        check("a.phps", None);
        check(".php", None);
        check("a.PHP", None);
        check("", None);
    }
}
