package bodycheck

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/internal/protofields"
)

// message is a field 1 that holds a field 1 and so on, to a depth.
func message(depth int) []byte {
	var reversed []byte
	for range depth {
		head := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(reversed)))
		slices.Reverse(head)
		reversed = append(reversed, head...)
	}
	slices.Reverse(reversed)
	return reversed
}

func TestNestedDeeper(t *testing.T) {
	for _, test := range []struct {
		rule string
		data []byte
		want bool
	}{
		{"an empty body is accepted", nil, false},
		{"a message at the limit is accepted", message(protofields.MaxNesting), false},
		{"one level more is refused", message(protofields.MaxNesting + 1), true},
		{"half a million levels are refused", message(600_000), true},
		{"fields before the message do not hide it", append([]byte{2 << 3, 7, 3<<3 | 5, 1, 2, 3, 4, 4<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8}, message(protofields.MaxNesting+1)...), true},
		{"an end of a group does not hide it", append([]byte{2<<3 | 3, 2<<3 | 4}, message(protofields.MaxNesting+1)...), true},
		{"a tag of too many bits does not hide it", append([]byte{2<<3 | 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 7}, message(protofields.MaxNesting+1)...), true},
		{"text is not a message", []byte(strings.Repeat("text ", 1000)), false},
		{"a length beyond the end is no message", []byte{1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, false},
		{"a cut tag is no message", []byte{0x80}, false},
		{"a cut fixed field is no message", []byte{1<<3 | 1, 0}, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			NewWithT(t).Expect(nestedDeeper(test.data, protofields.MaxNesting)).To(Equal(test.want))
		})
	}
}

func TestDeeplyNestedProtobufIsRefused(t *testing.T) {
	const maxBytes = 1 << 20
	deep := append([]byte("k8s\x00"), message(protofields.MaxNesting+1)...)
	for _, test := range []struct {
		rule, contentType string
		body              []byte
		want              int
	}{
		{"a flat message passes", runtime.ContentTypeProtobuf, append([]byte("k8s\x00"), message(5)...), http.StatusOK},
		{"a body that is no message passes, for the decoder to refuse", runtime.ContentTypeProtobuf, []byte("x"), http.StatusOK},
		{"a deep message is refused", runtime.ContentTypeProtobuf, deep, http.StatusBadRequest},
		{"a deep message of svc's own media type is refused", "application/vnd.svc.protobuf", deep, http.StatusBadRequest},
		{"the case of the media type does not hide it", "Application/VND.kubernetes.Protobuf", deep, http.StatusBadRequest},
		{"a body over the limit passes, for the handler to refuse", runtime.ContentTypeProtobuf, append(deep, make([]byte, maxBytes)...), http.StatusOK},
		{"JSON passes", runtime.ContentTypeJSON, deep, http.StatusOK},
	} {
		t.Run(test.rule, func(t *testing.T) {
			g := NewWithT(t)
			handler := Filter(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				got, err := io.ReadAll(req.Body)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(Equal(test.body))
			}), clientgoscheme.Codecs.WithoutConversion(), Checks(nil, clientgoscheme.Scheme, nil), maxBytes, nil)
			req := httptest.NewRequest(http.MethodPost, "/apis", bytes.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			g.Expect(w.Code).To(Equal(test.want), w.Body.String())
			if test.want == http.StatusBadRequest {
				g.Expect(w.Body.String()).To(ContainSubstring("nested deeper than 10000 levels"))
			}
		})
	}
}

// FuzzNestedDeeper checks that any data can be examined at any limit.
func FuzzNestedDeeper(f *testing.F) {
	f.Add(message(3), 2)
	f.Add([]byte("k8s\x00text"), 0)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit &= 0xff
		if nestedDeeper(data, limit+1) && !nestedDeeper(data, limit) {
			t.Errorf("deeper than %d and not than %d", limit+1, limit)
		}
	})
}
