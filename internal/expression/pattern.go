package expression

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"sync"
)

// Limits of a regular expression.
const (
	MaxPatternBytes = 1000
	maxPatternSize  = 2000 // instructions
	matchStep       = 32   // instructions × bytes of text per unit of cost
)

var (
	errPatternTooLong  = fmt.Errorf("a regular expression is longer than %d bytes", MaxPatternBytes)
	errPatternTooLarge = errors.New("a regular expression is too large after expanding its repetitions")
)

// A Pattern is a regular expression with a known price. Matching takes time in proportion to the
// text and the size of the expression.
type Pattern struct {
	*regexp.Regexp
	size int
}

// CompilePattern compiles a regular expression. It rejects expressions that are too large.
func CompilePattern(text string) (*Pattern, error) {
	if len(text) > MaxPatternBytes {
		return nil, errPatternTooLong
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w (RE2 syntax does not support look-around or backreferences)", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxPatternSize {
		return nil, errPatternTooLarge
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &Pattern{Regexp: compiled, size: len(program.Inst)}, nil
}

// Price returns the cost of matching a text: the compiled size × the length of the text.
func (p *Pattern) Price(text string) int { return 1 + p.size*(len(text)+1)/matchStep }

// patternCache caches recent patterns and compile errors.
type patternCache struct {
	mu   sync.Mutex
	list map[string]cachedPattern
}

type cachedPattern struct {
	*Pattern
	err error
}

const cachedPatterns = 64

func (c *patternCache) compile(text string) (*Pattern, error) {
	if len(text) > MaxPatternBytes {
		return nil, errPatternTooLong
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.list[text]
	if !ok {
		if p.Pattern, p.err = CompilePattern(text); len(c.list) >= cachedPatterns || c.list == nil {
			c.list = map[string]cachedPattern{}
		}
		c.list[text] = p
	}
	return p.Pattern, p.err
}
