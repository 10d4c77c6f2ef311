package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Version is a version of a kind other than its hub: a Go type and the
// functions between the two. Convert and Alike make it.
type Version struct {
	// GVK is the version's group, version and kind. The group may differ from
	// the hub's (Event is served in the core group and in events.k8s.io).
	GVK schema.GroupVersionKind
	// Validate, if set, validates objects that clients write in this version,
	// instead of the hub's Validate and ValidateUpdate. It is given hub objects; old
	// is a nil interface on create.
	Validate func(obj, old runtime.Object) field.ErrorList
	// ValidateView, if set, does so for updates through a subresource that is a view,
	// or the status, instead of its Validate.
	ValidateView func(view string, obj, old runtime.Object) field.ErrorList
	// Default, if set, fills in what this version defaults otherwise than the hub, in an
	// object of this version that a client sends. The hub's defaults come after it.
	Default func(obj runtime.Object)
	// Without, if set, fills in what a field stands for at the releases of this version that
	// do not have it, in an object of this version that a client sends, by the field's path
	// ("spec.validationActions").
	Without map[string]func(obj runtime.Object)
	// Unconditional lets a PUT in this version name no resourceVersion, though the kind is
	// RequireVersion.
	Unconditional bool
	// FieldLabels, if set, are the field selectors of this version beyond
	// metadata.name and metadata.namespace, each with the hub's path for it
	// ("regarding.name": "involvedObject.name").
	FieldLabels map[string]string

	prototype runtime.Object
	register  func(s *runtime.Scheme, hub *Kind) error
}

// New makes an empty object of the version's Go type.
func (v Version) New() runtime.Object {
	return v.prototype.DeepCopyObject()
}

// NewList makes an empty list of the version's Go type, or nil if there is no such type.
func (v Version) NewList() runtime.Object {
	list, err := newOf(listGVK(mustGVK(v.prototype)))
	if err != nil {
		return nil
	}
	return list
}

// Convert declares that a kind whose hub is *Hub is also served as *Other.
// The functions fill their second argument, which is empty, from the first;
// they may share memory with it. Nothing may be lost on the way from Other to
// Hub and back (document 2, section 9, rule 2). ObjectMeta must be copied,
// TypeMeta need not be. Lists convert by the same functions.
func Convert[Hub, Other any, PHub object[Hub], POther object[Other]](
	toHub func(in *Other, out *Hub) error,
	fromHub func(in *Hub, out *Other) error,
) Version {
	prototype := POther(new(Other))
	return Version{
		GVK:       mustGVK(prototype),
		prototype: prototype,
		register: func(s *runtime.Scheme, hub *Kind) error {
			convert := func(in, out any) error { return toHub(in.(*Other), out.(*Hub)) }
			decode := func(in, out any) error {
				if err := convert(in, out); err != nil {
					return err
				}
				hub.Default(PHub(out.(*Hub)))
				return nil
			}
			encode := func(in, out any) error { return fromHub(in.(*Hub), out.(*Other)) }
			if err := s.AddConversionFunc(new(Other), new(Hub), func(in, out any, scope conversion.Scope) error {
				if _, ok := scope.Meta().Context.(WithoutDefaults); ok {
					return convert(in, out)
				}
				return decode(in, out)
			}); err != nil {
				return err
			}
			if err := addConversion(s, new(Hub), new(Other), encode); err != nil {
				return err
			}
			hubList := hub.NewList()
			if hubList == nil {
				return nil // a virtual type
			}
			otherList, err := newOf(listGVK(mustGVK(prototype)))
			if err != nil {
				return fmt.Errorf("no list type: %w", err)
			}
			if err := addConversion(s, otherList, hubList, listConversion(decode, func() runtime.Object { return PHub(new(Hub)) })); err != nil {
				return err
			}
			return addConversion(s, hubList, otherList, listConversion(encode, func() runtime.Object { return POther(new(Other)) }))
		},
	}
}

// WithoutDefaults is the target of a conversion to the hub that does not fill in
// defaults: a field that the object does not have stays absent.
type WithoutDefaults struct{ runtime.GroupVersioner }

// ValidatedBy returns the version with Validate set.
func (v Version) ValidatedBy(validate func(obj, old runtime.Object) field.ErrorList) Version {
	v.Validate = validate
	return v
}

// ViewsValidatedBy returns the version with ValidateView set.
func (v Version) ViewsValidatedBy(validate func(view string, obj, old runtime.Object) field.ErrorList) Version {
	v.ValidateView = validate
	return v
}

// DefaultedBy returns the version with Default set; f is given a pointer to the
// version's Go type.
func (v Version) DefaultedBy(f func(obj runtime.Object)) Version {
	v.Default = f
	return v
}

// FilledWithout returns the version with Without set for a field; f is given a pointer to the
// version's Go type.
func (v Version) FilledWithout(path string, f func(obj runtime.Object)) Version {
	v.Without = maps.Clone(v.Without)
	if v.Without == nil {
		v.Without = map[string]func(runtime.Object){}
	}
	v.Without[path] = f
	return v
}

// At returns the version at a release, which lacks some fields: Default does what Without says
// of these, too.
func (v Version) At(lacks func(gvk schema.GroupVersionKind, path ...string) bool) Version {
	fills := []func(runtime.Object){}
	for _, path := range slices.Sorted(maps.Keys(v.Without)) {
		if lacks(v.GVK, strings.Split(path, ".")...) {
			fills = append(fills, v.Without[path])
		}
	}
	if len(fills) == 0 {
		return v
	}
	if v.Default != nil {
		fills = append(fills, v.Default)
	}
	return v.DefaultedBy(func(obj runtime.Object) {
		for _, fill := range fills {
			fill(obj)
		}
	})
}

// UpdatedUnconditionally returns the version with Unconditional set.
func (v Version) UpdatedUnconditionally() Version {
	v.Unconditional = true
	return v
}

// WithFieldLabels returns the version with FieldLabels set.
func (v Version) WithFieldLabels(labels map[string]string) Version {
	v.FieldLabels = labels
	return v
}

// InputVersion is a version of an action's input other than its own.
type InputVersion struct {
	GVK schema.GroupVersionKind

	register func(s *runtime.Scheme) error
}

// ConvertInput declares that an action whose input is *Input also takes *Other.
// Each function fills its second argument, which is empty, from the first; they
// may share memory. The field manager of the request converts the body back.
func ConvertInput[Input, Other any, PInput object[Input], POther object[Other]](convert func(in *Other, out *Input), back func(in *Input, out *Other)) InputVersion {
	gvk := mustGVK(POther(new(Other)))
	return InputVersion{
		GVK: gvk,
		register: func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(gvk, POther(new(Other)))
			if err := addConversion(s, new(Other), new(Input), func(in, out any) error {
				convert(in.(*Other), out.(*Input))
				return nil
			}); err != nil {
				return err
			}
			return addConversion(s, new(Input), new(Other), func(in, out any) error {
				back(in.(*Input), out.(*Other))
				return nil
			})
		},
	}
}

// object is a pointer to T that is an API object.
type object[T any] interface {
	*T
	Object
}

func addConversion(s *runtime.Scheme, from, to any, f func(in, out any) error) error {
	return s.AddConversionFunc(from, to, func(in, out any, _ conversion.Scope) error { return f(in, out) })
}

// listConversion converts lists item by item.
func listConversion(convert func(in, out any) error, newItem func() runtime.Object) func(in, out any) error {
	return func(in, out any) error {
		from, to := in.(runtime.Object), out.(runtime.Object)
		fromMeta, err := meta.ListAccessor(from)
		if err != nil {
			return err
		}
		toMeta, err := meta.ListAccessor(to)
		if err != nil {
			return err
		}
		toMeta.SetResourceVersion(fromMeta.GetResourceVersion())
		toMeta.SetContinue(fromMeta.GetContinue())
		toMeta.SetRemainingItemCount(fromMeta.GetRemainingItemCount())
		fromShard, ok := fromMeta.(metav1.ShardedListInterface)
		toShard, has := toMeta.(metav1.ShardedListInterface)
		if ok && has {
			toShard.SetShardInfo(fromShard.GetShardInfo())
		}
		items := make([]runtime.Object, 0, meta.LenList(from))
		if err := meta.EachListItem(from, func(item runtime.Object) error {
			converted := newItem()
			items = append(items, converted)
			return convert(item, converted)
		}); err != nil {
			return err
		}
		return meta.SetList(to, items)
	}
}
