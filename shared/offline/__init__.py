"""The encrypted records from which pods start where the API server does not answer after a start (`offlinePods`).

sources keeps the pods and objects, status the tokens of service accounts: each what it reads or writes anyway.
"""
