package architecture

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownCode = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	markdownLink = regexp.MustCompile(`\]\(([^)\s:#]*)(?:#([^)\s]*))?\)`)
	markdownHead = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	notInAnchors = regexp.MustCompile(`[^\p{L}0-9 _-]`)
)

// Every relative link of a Markdown file names a file or folder that exists, and a heading of it.
func TestLinksResolve(t *testing.T) {
	anchors, pages := map[string]map[string]bool{}, map[string]string{}
	eachFile(t, func(name string, content []byte) {
		if path.Ext(name) == ".md" {
			anchors[name] = headingAnchors(string(content))
			pages[name] = markdownCode.ReplaceAllString(string(content), "")
		}
	})
	for name, text := range pages {
		for _, link := range markdownLink.FindAllStringSubmatch(text, -1) {
			target, anchor := name, link[2]
			if link[1] != "" {
				target = path.Join(path.Dir(name), link[1])
			}
			if _, err := os.Stat(path.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, target)
			} else if anchor != "" && !anchors[target][anchor] {
				t.Errorf("%s links to the heading %q, which %s does not have", name, anchor, target)
			}
		}
	}
}

// headingAnchors returns the anchors that a code host derives from the headings of a page.
func headingAnchors(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, heading := range markdownHead.FindAllStringSubmatch(text, -1) {
		anchor := notInAnchors.ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return anchors
}
