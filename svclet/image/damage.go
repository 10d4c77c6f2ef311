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
	for _, known := range []struct{ text, remedy string }{
		{"unexpected EOF", "a layer or another part of the image is truncated: pull the image again and, if that fails too, push it to the registry again"},
		{"unexpected commit size", "a layer or another part of the image is truncated: pull the image again and, if that fails too, push it to the registry again"},
		{"unexpected commit digest", "a layer or another part of the image is not what its digest says: pull the image again and, if that fails too, push it to the registry again"},
	} {
		if strings.Contains(err.Error(), known.text) {
			return fmt.Errorf("%w: %s", err, known.remedy)
		}
	}
	return err
}
