package wire

import (
	"bytes"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// FuzzMarshal: the encoding is that of generated code.
func FuzzMarshal(f *testing.F) {
	for seed := range int64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		obj := &autoscalingv2.HorizontalPodAutoscaler{}
		randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).Funcs(
			func(f *metav1.FieldsV1, _ randfill.Continue) { *f = *metav1.NewFieldsV1("{}") },
			func(at *metav1.Time, c randfill.Continue) { at.Time = time.Unix(int64(c.Uint32()), 0) },
		).Fill(obj)
		want, err := obj.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got  %x\nwant %x", got, want)
		}
	})
}

func TestUnmarshalRefusesWhatIsNotAMessage(t *testing.T) {
	for _, data := range [][]byte{{0xff}, {0x0a, 0x05, 0x01}, {0x12, 0x02, 0x18}, {0x10, 0x01}} {
		if err := Unmarshal(data, &autoscalingv2.HorizontalPodAutoscaler{}); err == nil {
			t.Errorf("%x is accepted", data)
		}
	}
}
