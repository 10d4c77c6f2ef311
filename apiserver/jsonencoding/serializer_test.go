package jsonencoding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

func jsonOf(t testing.TB, codecs runtime.NegotiatedSerializer, obj runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("no JSON")
	}
	var out bytes.Buffer
	if err := info.Serializer.Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func factory() serializer.CodecFactory {
	return serializer.NewCodecFactory(clientgoscheme.Scheme, serializer.WithStreamingCollectionEncodingToJSON())
}

func pod(name string, fields ...metav1.ManagedFieldsEntry) corev1.Pod {
	return corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"<&>": "\u2028"}, ManagedFields: fields},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
}

func entry(manager, raw string) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)))
	e := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", Subresource: "status"}
	e.FieldsV1 = &metav1.FieldsV1{}
	e.FieldsV1.SetRawBytes([]byte(raw))
	return e
}

func TestEncodesWhatTheLibraryEncodes(t *testing.T) {
	full := pod("full", entry("a\"b<", `{"f:spec":{"k:{\"name\":\"c\"}":{".":{}}}}`), entry("second", `{}`))
	plain := pod("plain")
	emptyEntry, noTime := pod("empty", metav1.ManagedFieldsEntry{}), pod("notime", metav1.ManagedFieldsEntry{Manager: "m", Time: &metav1.Time{}, FieldsV1: &metav1.FieldsV1{}})
	remaining := int64(3)
	many := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "x", RemainingItemCount: &remaining}}
	for range 200 {
		many.Items = append(many.Items, full, plain)
	}
	for name, obj := range map[string]runtime.Object{
		"an object with managed fields":  &full,
		"one without":                    &plain,
		"an empty entry":                 &emptyEntry,
		"an entry without time":          &noTime,
		"a list over several writes":     many,
		"a list with its kind":           &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{full}},
		"a list of nothing":              &corev1.PodList{Items: []corev1.Pod{}},
		"a list of nil":                  &corev1.PodList{},
		"metadata alone":                 &metav1.PartialObjectMetadata{ObjectMeta: full.ObjectMeta},
		"a list of metadata":             &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: full.ObjectMeta}}},
		"a status":                       &metav1.Status{Status: "Failure", Message: "x"},
		"a table":                        &metav1.Table{Rows: []metav1.TableRow{{Cells: []any{"a"}, Object: runtime.RawExtension{Raw: []byte(`{"a":1}`)}}}},
		"a watch event":                  &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: []byte(`{"a":1}`)}},
		"an event of an encoded object":  &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: []byte("{\"a\":1}\n")}},
		"an event without an object":     &metav1.WatchEvent{Type: "BOOKMARK"},
		"a list whose items are untyped": &metav1.List{Items: []runtime.RawExtension{{Raw: []byte(`{"a":1}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			before := obj.DeepCopyObject()
			want, got := jsonOf(t, factory(), obj), jsonOf(t, New(clientgoscheme.Scheme, factory(), nil), obj)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("the object was changed: %s", diff)
			}
			if !json.Valid(got) {
				t.Error("not JSON")
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	raw := `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{`
	for i := range 10 {
		raw += fmt.Sprintf(`"k:{\"name\":\"c%d\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{}},`, i)
	}
	raw = strings.TrimSuffix(raw, ",") + "}}}"
	p := pod("p", entry("kubectl", raw))
	for name, codecs := range map[string]runtime.NegotiatedSerializer{"library": factory(), "fast": New(clientgoscheme.Scheme, factory(), nil)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				jsonOf(b, codecs, &p)
			}
		})
	}
}
