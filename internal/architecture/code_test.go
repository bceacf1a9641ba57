package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeOf has the directory of the program that a page quotes. Its tests run with all others.
var codeOf = map[string]string{
	"docs/how-to/embed.md": "examples/embed",
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// Every block of Go on a page is part of a file, regardless of its indentation.
func TestCodeOfPagesIsCompiled(t *testing.T) {
	for page, dir := range codeOf {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", dir, err)
		}
		var code strings.Builder
		for _, name := range files {
			file, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			code.WriteString(withoutIndentation(string(file)))
		}
		blocks := goBlock.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no code", page)
		}
		for _, block := range blocks {
			if !strings.Contains(code.String(), withoutIndentation(block[1])) {
				t.Errorf("%s has code that no file of %s has:\n%s", page, dir, block[1])
			}
		}
	}
}

func withoutIndentation(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}
