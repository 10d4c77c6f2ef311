package stream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) {
	b.writes++
	return 0, errors.New("broken pipe")
}

func TestWritesToADisconnectedClientAreDropped(t *testing.T) {
	to := &broken{}
	n, err := io.Copy(&clientWriter{ctx: t.Context(), to: to}, io.MultiReader(strings.NewReader("on "), strings.NewReader("and on")))
	if n != 9 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if to.writes != 1 {
		t.Errorf("it was tried %d times", to.writes)
	}
}

func TestInputEndsWhenTheClientDisconnects(t *testing.T) {
	from := io.MultiReader(strings.NewReader("input"), iotest.ErrReader(errors.New("connection reset by peer")))
	got, err := io.ReadAll(&clientReader{t.Context(), from})
	if string(got) != "input" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
