package nesting

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

func TestDeeper(t *testing.T) {
	for _, test := range []struct {
		rule string
		data []byte
		want bool
	}{
		{"nothing is not deep", nil, false},
		{"the limit is allowed", message(Limit), false},
		{"one more is not", message(Limit + 1), true},
		{"so much is not", message(600_000), true},
		{"what comes before does not hide it", append([]byte{2 << 3, 7, 3<<3 | 5, 1, 2, 3, 4, 4<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8}, message(Limit+1)...), true},
		{"a group's end does not hide it", append([]byte{2<<3 | 3, 2<<3 | 4}, message(Limit+1)...), true},
		{"text is not a message", []byte(strings.Repeat("text ", 1000)), false},
		{"a length beyond the end is no message", []byte{1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, false},
		{"a cut tag is no message", []byte{0x80}, false},
		{"a cut fixed field is no message", []byte{1<<3 | 1, 0}, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			NewWithT(t).Expect(deeper(test.data, Limit)).To(Equal(test.want))
		})
	}
}

func TestBoundDecodesWhatIsNotTooDeep(t *testing.T) {
	g := NewWithT(t)
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "deep.example.com"},
	}
	schemaOf := func(depth int) *apiextensionsv1.JSONSchemaProps {
		s := &apiextensionsv1.JSONSchemaProps{Type: "string"}
		for range depth {
			s = &apiextensionsv1.JSONSchemaProps{Not: s}
		}
		return s
	}
	for _, serializer := range []func(runtime.SerializerInfo) runtime.Serializer{
		func(i runtime.SerializerInfo) runtime.Serializer { return i.Serializer },
		func(i runtime.SerializerInfo) runtime.Serializer { return i.StrictSerializer },
	} {
		info, found := runtime.SerializerInfoForMediaType(Bound(apiextensionsserver.Codecs).SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		g.Expect(found).To(BeTrue())
		for depth, want := range map[int]string{100: "", Limit + 1: "nested deeper than 10000 levels"} {
			crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schemaOf(depth)}}}
			body, err := runtime.Encode(info.Serializer, crd)
			g.Expect(err).NotTo(HaveOccurred())
			got, _, err := serializer(info).Decode(body, nil, nil)
			if want != "" {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
				continue
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(BeAssignableToTypeOf(crd))
		}
	}
}

// FuzzDeeper reads whatever comes, at whatever limit, and ends.
func FuzzDeeper(f *testing.F) {
	f.Add(message(3), 2)
	f.Add([]byte("k8s\x00text"), 0)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit &= 0xff
		if deeper(data, limit+1) && !deeper(data, limit) {
			t.Errorf("deeper than %d and not than %d", limit+1, limit)
		}
	})
}
