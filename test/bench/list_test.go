package main

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

func TestContinueTokenIsFoundAtTheBeginningOfAList(t *testing.T) {
	scheme := clientgoscheme.Scheme
	for _, test := range []struct {
		name    string
		encoder runtime.Encoder
		find    func([]byte) string
	}{
		{"JSON", json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{}), jsonContinue},
		{"protobuf", protobuf.NewSerializer(scheme, scheme), protobufContinue},
	} {
		for _, token := range []string{"", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"} {
			list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
			list.ResourceVersion, list.Continue = "123456", token
			for range chunk {
				list.Items = append(list.Items, corev1.Pod{Spec: corev1.PodSpec{NodeName: `"continue":"no"`}})
			}
			var b bytes.Buffer
			if err := test.encoder.Encode(list, &b); err != nil {
				t.Fatal(err)
			}
			head := b.Bytes()[:min(b.Len(), 4<<10)]
			if got := test.find(head); got != token {
				t.Errorf("%s: found %q, want %q", test.name, got, token)
			}
		}
	}
}
