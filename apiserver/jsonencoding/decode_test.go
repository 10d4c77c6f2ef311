package jsonencoding

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	libraryjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

var documents = []string{
	`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"kind":"Pod"}},"data":{"a":"}\"],{","b":"\\"}}`,
	` { "metadata" : { "name" : "a" } , "kind" : "ConfigMap" , "apiVersion" : "v1" } ` + "\n",
	`{"data":{"kind":"Pod"},"binaryData":null,"immutable":true,"kind":"ConfigMap","apiVersion":"v1"}`,
	`{"kind":"Pod","kind":"ConfigMap","apiVersion":"apps/v1","apiVersion":"v1"}`,
	`{"Kind":"Pod","kind":"ConfigMap","apiVersion":"v1"}`,
	`{"kind":"ConfigMap","KIND":"Pod","apiVersion":"v1"}`,
	`{"\u006bind":"ConfigMap","apiVersion":"v1"}`,
	`{"kind":"Config\u004dap","apiVersion":"v1"}`,
	`{"kind":null,"apiVersion":"v1"}`, `{"kind":1,"apiVersion":"v1"}`, `{"kind":"ConfigMap","apiVersion":{}}`,
	`{"kind":"ConfigMap","apiVersion":"a/b/c"}`, `{"kind":"Nothing","apiVersion":"v1"}`,
	`{"kind":"ConfigMap","apiVersion":"v1","unknown":1,"data":{"a":"1","a":"2"}}`,
	`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":1}}`,
	`{}`, ` {} `, `{}{}`, `[]`, `null`, `"a"`, ``, ` `, `{`, `{"`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{"a":1}}`, `{,}`, `{"a" 1}`,
	`{"kind":"ConfigMap","apiVersion":"v1","data":{]}}`, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"b"]}`,
	`{"kind":"ConfigMap","apiVersion":"v1","data":tru}`, `{"kind":"ConfigMap","apiVersion":"v1","data":{}} x`, `{"kind":"ConfigMap","apiVersion":"v1","immutable":true false}`,
	`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"unterminated}`, `{"kind":"ConfigMap` + "\x01" + `","apiVersion":"v1"}`,
	`{"kind":"Cönfig","apiVersion":"v1"}`, `{"kInd":"Pod"}`, `{"K` + "\u0131" + `nd":"Pod","` + "\u212a" + `ind":"ConfigMap","apiVersion":"v1"}`,
}

func decoders(codecs runtime.NegotiatedSerializer) map[string]runtime.Decoder {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return map[string]runtime.Decoder{"lenient": info.Serializer, "strict": info.StrictSerializer}
}

func TestDecodesWhatTheLibraryDecodes(t *testing.T) {
	defaults := map[string]*schema.GroupVersionKind{"no default": nil, "a default": {Version: "v1", Kind: "ConfigMap"}}
	ours := decoders(New(clientgoscheme.Scheme, factory(), nil))
	for mode, library := range decoders(factory()) {
		for name, gvk := range defaults {
			for _, document := range documents {
				t.Run(mode+"/"+name+"/"+document, func(t *testing.T) {
					want, wantGVK, wantErr := library.Decode([]byte(document), gvk, nil)
					got, gotGVK, err := ours[mode].Decode([]byte(document), gvk, nil)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Error(diff)
					}
					if diff := cmp.Diff(wantGVK, gotGVK); diff != "" {
						t.Error(diff)
					}
					if fmt.Sprint(err) != fmt.Sprint(wantErr) || runtime.IsStrictDecodingError(err) != runtime.IsStrictDecodingError(wantErr) {
						t.Errorf("error %v, want %v", err, wantErr)
					}
				})
			}
		}
	}
}

// FuzzTypeOf looks for documents whose type is read as another than
// encoding/json reads.
func FuzzTypeOf(f *testing.F) {
	for _, document := range documents {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		apiVersion, kind, ok := typeOf(data)
		if !ok || !json.Valid(data) {
			return // the library's to read, or the decoder's to refuse
		}
		want, err := libraryjson.DefaultMetaFactory.Interpret(data)
		if err != nil {
			if _, err := schema.ParseGroupVersion(apiVersion); err == nil {
				t.Fatalf("%q is read, the library says %v", data, err)
			}
			return
		}
		if got, _ := schema.ParseGroupVersion(apiVersion); got != want.GroupVersion() || kind != want.Kind {
			t.Fatalf("%q: %s %s, want %s", data, got, kind, want)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	document, err := json.Marshal(&corev1.ConfigMap{Data: map[string]string{"config": strings.Repeat("x", 900)}})
	if err != nil {
		b.Fatal(err)
	}
	document = []byte(`{"apiVersion":"v1","kind":"ConfigMap",` + string(document[1:]))
	for name, codecs := range map[string]runtime.NegotiatedSerializer{"library": factory(), "quick": New(clientgoscheme.Scheme, factory(), nil)} {
		decoder := decoders(codecs)["strict"]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := decoder.Decode(document, nil, &corev1.ConfigMap{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
