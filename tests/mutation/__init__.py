"""Small wrong changes to the source, made by machine: do the audits notice those that break privacy?

`operators` says what is changed. `sources` finds every place and loads a changed module. `judge` decides whether a
change breaks privacy, by means of its own. `audits` names the tests that must notice.
"""
