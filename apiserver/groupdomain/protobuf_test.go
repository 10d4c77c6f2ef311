package groupdomain

import (
	"bytes"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apis"
)

func TestMetadataInProtobufSaysTheDomainsNames(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	p := &protobuf{scheme: scheme, root: publicAnswer(t), stored: func(v string) string { return v }}
	one := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1"}}}}
	list, err := (&metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{one}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	changed, err := p.object(envelop(t, "PartialObjectMetadataList", list))
	if err != nil {
		t.Fatal(err)
	}
	var decodedList metav1.PartialObjectMetadataList
	decodeProtobuf(t, changed, &decodedList)
	checkOwner(t, decodedList.Items[0])

	raw, err := one.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	event, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: envelop(t, "PartialObjectMetadata", raw)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	frame := append([]byte{0, 0, 0, byte(len(event))}, event...)
	for _, size := range []int{1, 3, 1000} {
		var out bytes.Buffer
		w := &events{to: &out, translate: p.event}
		for piece := range slices.Chunk(slices.Concat(frame, frame), size) {
			if _, err := w.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			var got metav1.WatchEvent
			if err := got.Unmarshal(out.Next(int(out.Next(lengthSize)[lengthSize-1]))); err != nil {
				t.Fatal(err)
			}
			var decoded metav1.PartialObjectMetadata
			decodeProtobuf(t, got.Object.Raw, &decoded)
			checkOwner(t, decoded)
		}
	}
}

// envelop returns an object of meta.k8s.io with its envelope.
func envelop(t *testing.T, kind string, raw []byte) []byte {
	t.Helper()
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Clone(magic), body...)
}

func checkOwner(t *testing.T, o metav1.PartialObjectMetadata) {
	t.Helper()
	if got := o.OwnerReferences[0].APIVersion; got != "apps.svc.dev/v1" {
		t.Errorf("the owner is of %s", got)
	}
}
