package image

import (
	"fmt"
	"strings"
)

// ExplainDamage adds to an error of containerd about content that a registry has sent what the user can
// do. It returns others as they are.
func ExplainDamage(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []struct{ text, damage string }{
		{"unexpected EOF", "truncated"},
		{"unexpected commit size", "truncated"},
		{"unexpected commit digest", "not what its digest says"},
	} {
		if strings.Contains(err.Error(), known.text) {
			return fmt.Errorf("%w: a layer or another part of the image is %s: pull the image again and, if that fails too, push it to the registry again", err, known.damage)
		}
	}
	return err
}
