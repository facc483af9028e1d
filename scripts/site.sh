#!/bin/sh
# The documentation as pages for a browser, with search: scripts/site.sh DIRECTORY
#
# Needs mdbook (cargo install mdbook). The pages are those of docs/, README.md and their like, in the order of
# docs/SUMMARY.md.
set -eu

if [ $# != 1 ] || [ "${1#-}" != "$1" ]; then
    echo "usage: $0 DIRECTORY" >&2
    exit 2
fi
command -v mdbook >/dev/null || { echo "$0: mdbook is not there: cargo install mdbook" >&2 && exit 1; }
mkdir -p -- "$1"
into=$(CDPATH='' cd -- "$1" && pwd -P)
cd "$(dirname -- "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp book.toml "$work/"
cp -r docs "$work/docs"
mv "$work/docs/decisions/README.md" "$work/docs/decisions/index.md"
# Links of pages at the top lead into docs/, and out of it there.
for page in README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md; do
    sed 's|](docs/|](|g' "$page" >"$work/docs/$page"
done
cp redrt-tests/lab/README.md "$work/docs/lab.md"
echo '- [Hosts for tests](lab.md)' >>"$work/docs/SUMMARY.md"
# Links to other pages of the site are kept, from folders of docs/ too. Of links to sources only the text is left.
find "$work/docs" -name '*.md' | while IFS= read -r page; do
    folder=$(dirname -- "${page#"$work/docs/"}")
    up=$([ "$folder" = . ] || printf '%s/' "$folder" | sed 's|[^/]*/|../|g')
    sed -e "s@](\.\./$up\(README\|ARCHITECTURE\|CONTRIBUTING\|CHANGELOG\)\.md@]($up\1.md@g" \
        -e 's@decisions/README\.md@decisions/index.md@g' \
        -e "s@](\.\./${up}redrt-tests/lab/README\.md@](${up}lab.md@g" \
        -e "s@\[\([^]]*\)\](\.\./$up[^)]*)@\1@g" \
        -e 's@\[\([^]]*\)\](\(\(redrt\|tools\|cloner\|quiesce\|examples\)/[^)]*\|LICENSE\))@\1@g' "$page" >"$page.new"
    mv "$page.new" "$page"
done
mdbook build "$work" --dest-dir "$into"
# A link that leads nowhere, by the page that has it.
cd "$into"
links=$(grep -ro --include='*.html' 'href="[^"#:]*[#"]' . | sed 's/href="//; s/[#"]$//' | sort -u)
broken=$(echo "$links" | while IFS=: read -r page target; do
    [ -z "$target" ] || [ -e "$(dirname -- "$page")/$target" ] || echo "$page: $target"
done)
[ -z "$broken" ] || { echo "$0: links that lead nowhere:" "$broken" >&2 && exit 1; }
