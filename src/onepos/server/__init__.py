"""The review page and its JSON API, served on this machine by `onepos serve`; needs `pip install 'onepos[web]'`.

store       answers in SQLite, committed before they are acknowledged
queue       which item is shown next, and to whom
judgement   what the models make of the rows: probabilities, additions, priors
items       how a row is shown: text, image, features
review      the four together: what the API does
improve     a new judgement in a process of its own
trial       one row, text or image through the model
guard       token, hosts, origins, sizes, rates, headers
app         the routes
static/     the page: HTML, CSS, JavaScript
"""
