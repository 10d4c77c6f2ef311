package convert

// Rule is what a finding is about.
type Rule string

// The rules.
const (
	RemovedVersion     Rule = "removed-version"
	MissingVersion     Rule = "missing-version"
	UnknownVersion     Rule = "unknown-version"
	DeprecatedVersion  Rule = "deprecated-version"
	OffByDefault       Rule = "off-by-default"
	MissingField       Rule = "missing-field"
	UnknownField       Rule = "unknown-field"
	DuplicateField     Rule = "duplicate-field"
	WrongType          Rule = "wrong-type"
	MissingValue       Rule = "missing-value"
	DeprecatedMetadata Rule = "deprecated-metadata"
	NotConvertible     Rule = "not-convertible"
	ChangedDefault     Rule = "changed-default"
	LiveVersion        Rule = "live-version"
	RequestedVersion   Rule = "requested-version"
)

// Rules are all rules with what they mean.
func Rules() map[Rule]string {
	return map[Rule]string{
		RemovedVersion:     "The release no longer serves this version of the kind.",
		MissingVersion:     "The release does not serve this version of the kind yet.",
		UnknownVersion:     "No release has this version of the kind.",
		DeprecatedVersion:  "The release serves this version of the kind and warns of it.",
		OffByDefault:       "The release serves this version of the kind only if --runtime-config names it.",
		MissingField:       "The release does not have this field.",
		UnknownField:       "No release has this field.",
		DuplicateField:     "The field is there twice.",
		WrongType:          "The value has another type than the field.",
		MissingValue:       "The release does not have this value of the field.",
		DeprecatedMetadata: "The annotation or label is deprecated or without effect at the release.",
		NotConvertible:     "A part of the object has no place in the new version, or needs a choice.",
		ChangedDefault:     "What the object leaves out means something else in the version that replaces the removed one.",
		LiveVersion:        "A client has written the object in a version that the release no longer serves.",
		RequestedVersion:   "Clients request a version that the release no longer serves.",
	}
}
