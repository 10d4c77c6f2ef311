package image

import (
	"errors"
	"strings"
	"testing"
)

func TestDamagedContentOfARegistryIsCalledThat(t *testing.T) {
	for text, want := range map[string]string{
		`failed to copy: httpReadSeeker: failed open: unexpected EOF`:                                                      "is truncated: pull the image again",
		`failed to extract layer sha256:1: gzip: unexpected EOF: unknown`:                                                  "is truncated: pull the image again",
		`failed commit on ref "layer-sha256:1": unexpected commit size 5, expected 10: failed precondition`:                "is truncated: pull the image again",
		`failed commit on ref "layer-sha256:1": unexpected commit digest sha256:2, expected sha256:1: failed precondition`: "is not what its digest says",
		`failed to do request: Get "https://registry.example.com/v2/": EOF`:                                                "",
	} {
		err := errors.New(text)
		got := ExplainDamage(err)
		if !errors.Is(got, err) || !strings.Contains(got.Error(), want) || (got.Error() == text) != (want == "") {
			t.Errorf("%v", got)
		}
	}
	if err := ExplainDamage(nil); err != nil {
		t.Error(err)
	}
}
