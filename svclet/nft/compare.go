package nft

import "errors"

// Comparison decides when tables are compared with what they are to have. It is not safe for
// concurrent use.
type Comparison struct {
	// Generation returns a number that each change of any table increases.
	Generation func() (uint32, error)
	// due is whether the next Run compares, same the generation of the last comparison that
	// found no difference.
	due  bool
	same uint32
}

// Request makes the next Run compare, unless no table of the machine has changed since the last
// comparison that found no difference.
func (c *Comparison) Request() {
	generation, err := c.Generation()
	c.due = c.due || err != nil || generation != c.same
}

// Due reports whether the next Run compares.
func (c *Comparison) Due() bool { return c.due }

// Run compares the tables if that is due: differing returns, for each table that differs, a
// function that makes it be written again. Run calls these functions, and reports whether
// there are any. What is read while a table changes does not count, as it may be of before
// the change or of after it.
func (c *Comparison) Run(differing func() (rewrite []func(), err error)) (differs bool, err error) {
	if !c.due {
		return false, nil
	}
	c.due = false
	before, err := c.Generation()
	rewrite, failure := differing()
	after, failure2 := c.Generation()
	if err = errors.Join(err, failure, failure2); err != nil || before != after {
		return false, err
	}
	if len(rewrite) == 0 {
		c.same = before
	}
	for _, do := range rewrite {
		do()
	}
	return len(rewrite) > 0, nil
}
